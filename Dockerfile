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
# Neither image has been built yet; the same commands were run without Docker, on Debian 12.
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
