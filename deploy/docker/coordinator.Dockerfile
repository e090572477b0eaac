# The server: coordinator, with PyTorch for the CPU, and broker. From the top of the repository, for both kinds of machine:
#   deploy/docker/pin.sh && . deploy/docker/images.env
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg PYTHON_IMAGE="$PYTHON_IMAGE" \
#       -f deploy/docker/coordinator.Dockerfile -t edgefl-coordinator .
# The base image by its digest, python:3.11-slim@sha256:...; there is no default, since a tag can change.
ARG PYTHON_IMAGE
FROM ${PYTHON_IMAGE} AS build
ARG PYTHON_IMAGE
RUN case "$PYTHON_IMAGE" in *@sha256:*) ;; *) echo "PYTHON_IMAGE needs a digest: deploy/docker/pin.sh"; exit 1 ;; esac
WORKDIR /source
COPY deploy/locks locks
# PyTorch's own index has wheels without CUDA; those on PyPI ask for gigabytes of it (locks/torch-cuda.txt). What comes
# from there is known by its version and the index's certificate alone: a torch-cpu.txt of your own beside the others, with
# hashes from `pip hash`, is taken instead.
RUN python -m venv /opt/edgefl \
 && /opt/edgefl/bin/pip install --no-cache-dir --require-hashes -r locks/coordinator.txt \
 && python -m venv /opt/build && /opt/build/bin/pip install --no-cache-dir --require-hashes -r locks/build.txt \
 && if [ -e locks/torch-cpu.txt ]; then set -- --require-hashes -r locks/torch-cpu.txt; \
    else set -- torch==2.13.0; fi \
 && /opt/edgefl/bin/pip install --no-cache-dir --no-deps --index-url https://download.pytorch.org/whl/cpu "$@"
COPY . .
RUN /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation -w dist . \
 && /opt/edgefl/bin/pip install --no-cache-dir --no-deps dist/*.whl

FROM ${PYTHON_IMAGE}
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends mosquitto && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/edgefl /opt/edgefl
RUN useradd --system --uid 10001 --home-dir /var/lib/edgefl --create-home edgefl \
 && install -d -o 10001 -g 10001 -m 0700 /var/lib/edgefl/kits
ENV PATH=/opt/edgefl/bin:$PATH PYTHONUNBUFFERED=1 EDGEFL_HEARTBEAT=/tmp/edgefl.alive EDGEFL_RUN__FOLDER=/var/lib/edgefl/runs \
    XDG_STATE_HOME=/var/lib/edgefl
# Each loop touches this file every ten seconds; one that hangs does not.
HEALTHCHECK --interval=30s --start-period=120s CMD ["python", "-c", \
  "import os, sys, time; sys.exit(time.time() - os.stat(os.environ['EDGEFL_HEARTBEAT']).st_mtime > 60)"]
USER 10001
WORKDIR /var/lib/edgefl
VOLUME /var/lib/edgefl
ENTRYPOINT ["edgefl"]
CMD ["coordinator", "start", "/etc/edgefl/run.toml", "--log", "info"]
