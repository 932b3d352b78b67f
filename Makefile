# `make demo` and `make test` are all that a new machine needs: each target makes
# the virtual environment by itself. Another Python: `make test PYTHON=python3.12`.
PYTHON ?= python3
VENV ?= .venv
DEMO_DIR ?= demo
RUN = $(VENV)/bin/python -um
INSTALLED = $(VENV)/.installed
TORCH_TRIED = $(VENV)/.torch_tried
DOCS_INSTALLED = $(VENV)/.docs_installed
LOCK = $(VENV)-lock

.PHONY: demo demo-minatar docs test lint format bench bench-smoke figures lock audit clean

$(INSTALLED): setup.py requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade pip
	$(VENV)/bin/python -m pip install --quiet --constraint requirements.txt --editable '.[dev]'
	touch $(INSTALLED)

# For the tests of batch_rl.dataset.torch. They need no GPU.
$(TORCH_TRIED): $(INSTALLED)
	$(VENV)/bin/python -m pip install --quiet --retries 0 \
	  --constraint requirements.txt \
	  --extra-index-url https://download.pytorch.org/whl/cpu \
	  'torch==2.13.0+cpu' torchdata 2>/dev/null \
	  || echo 'PyTorch cannot be installed here: its tests are skipped.'
	touch $(TORCH_TRIED)

demo: $(INSTALLED)
	VENV=$(VENV) DEMO_DIR='$(DEMO_DIR)' bash benchmarks/demo.sh

# Resumes if it was interrupted.
demo-minatar: $(INSTALLED)
	$(RUN) benchmarks.evidence.minatar --quick --work_dir='$(DEMO_DIR)-minatar'

test: $(TORCH_TRIED)
	$(RUN) pytest -q -n 2 --dist worksteal --durations=10

lint: $(INSTALLED)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: $(INSTALLED)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

$(DOCS_INSTALLED): $(INSTALLED)
	$(VENV)/bin/python -m pip install --quiet --constraint requirements.txt --editable '.[docs]'
	touch $(DOCS_INSTALLED)

# Material prints its opinion of MkDocs 2 unless told otherwise.
docs: $(DOCS_INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

# This machine beside Dopamine's loops: loading, training, batches.
bench: $(INSTALLED)
	$(RUN) benchmarks.data_path
	$(RUN) benchmarks.iteration
	$(RUN) benchmarks.sampling_rates

# Each program of benchmarks/ in its smallest form: a few minutes.
bench-smoke: $(TORCH_TRIED)
	$(RUN) benchmarks.smoke

# `make figures ONLY='pytorch kills'` measures these again: docs/help/figures.md.
figures: $(TORCH_TRIED)
	$(RUN) benchmarks.figures $(if $(ONLY),--only $(ONLY))

$(LOCK)/.installed:
	$(PYTHON) -m venv $(LOCK)
	$(LOCK)/bin/python -m pip install --quiet uv pip-audit
	touch $(LOCK)/.installed

# The versions of requirements.txt for every supported Python, with the hashes of all
# their files.
lock: $(LOCK)/.installed
	$(LOCK)/bin/uv pip compile --quiet --no-python-downloads --universal \
	  --python-version=3.10 --generate-hashes --no-annotate \
	  --custom-compile-command='make lock' --constraint=requirements.txt \
	  --extra=dev --output-file=requirements.lock setup.py

audit: $(LOCK)/.installed
	$(LOCK)/bin/pip-audit --strict --disable-pip --require-hashes \
	  --requirement=requirements.lock

clean:
	rm -rf $(VENV) $(LOCK) $(DEMO_DIR) $(DEMO_DIR)-minatar build site *.egg-info
