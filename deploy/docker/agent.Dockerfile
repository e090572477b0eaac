# The agent: no PyTorch, no model code. From the top of the repository, for both kinds of machine:
#   docker buildx build --platform linux/amd64,linux/arm64 -f deploy/docker/agent.Dockerfile -t edgefl-agent .
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY edgefl edgefl
COPY device_agent device_agent
COPY coordinator coordinator
# Further packages, e.g. scikit-learn for the built-in digits, or your own data's reader.
ARG ALSO=""
# onnxruntime 1.23.2: later wheels were seen to crash on the processor of a Raspberry Pi 4.
# hadolint ignore=SC2086
RUN sed '/^onnxruntime/d' constraints.txt > pins.txt && echo 'onnxruntime==1.23.2' >> pins.txt \
 && python -m venv /opt/edgefl \
 && /opt/edgefl/bin/pip install --no-cache-dir -c pins.txt . $ALSO

FROM python:3.11-slim
COPY --from=build /opt/edgefl /opt/edgefl
RUN useradd --system --uid 10001 --home-dir /var/lib/edgefl --create-home edgefl
ENV PATH=/opt/edgefl/bin:$PATH PYTHONUNBUFFERED=1 \
    EDGEFL_AGENT__FOLDER=/var/lib/edgefl EDGEFL_AGENT__CONNECT_TIMEOUT=0
USER 10001
WORKDIR /var/lib/edgefl
VOLUME /var/lib/edgefl
ENTRYPOINT ["edgefl"]
CMD ["agent", "start", "/etc/edgefl/agent.toml"]
