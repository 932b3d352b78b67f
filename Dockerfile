# The quickstart, `make demo`, on the CPU:
#
#   docker build --tag=batch_rl .
#   docker run --rm --volume="$PWD/results:/results" batch_rl
#
# With CUDA, on a host with an NVIDIA driver and its container toolkit:
#
#   docker build --tag=batch_rl --build-arg=EXTRAS='[cuda]' .
#   docker run --rm --gpus=all --volume="$PWD/results:/results" batch_rl
#
# Both images were built by Podman 4.3, on Debian 12 with Python 3.11.7: 4.4 and 8.8 GB. The
# first ran `make demo`, the second its `--quick` form on a CPU; it has not run on a GPU.
FROM python:3.11-slim-bookworm

# Libraries that OpenCV's wheel links.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends libgl1 libglib2.0-0 \
  && rm -rf /var/lib/apt/lists/*

WORKDIR /batch_rl
COPY . .
ARG EXTRAS=
RUN pip install --no-cache-dir --constraint requirements.txt --editable ".$EXTRAS"

ENV VENV=/usr/local DEMO_DIR=/results/demo
CMD ["bash", "benchmarks/demo.sh"]
