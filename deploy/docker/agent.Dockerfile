# The agent: no PyTorch, no model code. From the top of the repository, for both kinds of machine:
#   deploy/docker/pin.sh && . deploy/docker/images.env
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg PYTHON_IMAGE="$PYTHON_IMAGE" \
#       -f deploy/docker/agent.Dockerfile -t edgefl-agent .
# The base image by its digest, python:3.11-slim@sha256:...; there is no default, since a tag can change.
ARG PYTHON_IMAGE
FROM ${PYTHON_IMAGE} AS build
ARG PYTHON_IMAGE
RUN case "$PYTHON_IMAGE" in *@sha256:*) ;; *) echo "PYTHON_IMAGE needs a digest: deploy/docker/pin.sh"; exit 1 ;; esac
WORKDIR /source
COPY deploy/locks locks
# Further locks, e.g. digits for the built-in data, or one of your own that you put into deploy/locks.
ARG ALSO=""
RUN python -m venv /opt/edgefl \
 && for lock in device $ALSO; do \
      /opt/edgefl/bin/pip install --no-cache-dir --require-hashes -r "locks/$lock.txt" || exit 1; \
    done \
 && python -m venv /opt/build && /opt/build/bin/pip install --no-cache-dir --require-hashes -r locks/build.txt
COPY . .
RUN /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation -w dist . \
 && /opt/edgefl/bin/pip install --no-cache-dir --no-deps dist/*.whl

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/edgefl /opt/edgefl
RUN useradd --system --uid 10001 --home-dir /var/lib/edgefl --create-home edgefl
ENV PATH=/opt/edgefl/bin:$PATH PYTHONUNBUFFERED=1 EDGEFL_HEARTBEAT=/tmp/edgefl.alive \
    XDG_STATE_HOME=/var/lib/edgefl EDGEFL_AGENT__CONNECT_TIMEOUT=0
# Each loop touches this file every ten seconds; one that hangs does not.
HEALTHCHECK --interval=30s --start-period=120s CMD ["python", "-c", \
  "import os, sys, time; sys.exit(time.time() - os.stat(os.environ['EDGEFL_HEARTBEAT']).st_mtime > 60)"]
USER 10001
WORKDIR /var/lib/edgefl
VOLUME /var/lib/edgefl
ENTRYPOINT ["edgefl"]
CMD ["agent", "start"]
