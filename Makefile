# `make demo` and `make test` are all that a new machine needs: each target makes
# the virtual environment by itself. Another Python: `make test PYTHON=python3.12`.
PYTHON ?= python3
VENV ?= .venv
DEMO_DIR ?= demo
RUN = $(VENV)/bin/python -um
INSTALLED = $(VENV)/.installed

.PHONY: demo test lint format bench clean

$(INSTALLED): setup.py requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade pip
	$(VENV)/bin/python -m pip install --quiet --constraint requirements.txt --editable '.[dev]'
	touch $(INSTALLED)

demo: $(INSTALLED)
	VENV=$(VENV) DEMO_DIR='$(DEMO_DIR)' bash benchmarks/demo.sh

test: $(INSTALLED)
	$(RUN) pytest -q -n 2 --dist worksteal --durations=10

lint: $(INSTALLED)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: $(INSTALLED)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(INSTALLED)
	$(RUN) benchmarks.bench

clean:
	rm -rf $(VENV) $(DEMO_DIR) build *.egg-info
