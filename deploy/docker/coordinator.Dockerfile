# The coordinator, with PyTorch for the CPU. From the top of the repository, for both kinds of machine:
#   docker buildx build --platform linux/amd64,linux/arm64 -f deploy/docker/coordinator.Dockerfile -t edgefl-coordinator .
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY edgefl edgefl
COPY device_agent device_agent
COPY coordinator coordinator
# PyTorch's own index has wheels without CUDA; the one on PyPI for arm64 asks for gigabytes of it.
RUN python -m venv /opt/edgefl \
 && /opt/edgefl/bin/pip install --no-cache-dir -c constraints.txt \
    --extra-index-url https://download.pytorch.org/whl/cpu '.[coordinator]'

FROM python:3.11-slim
COPY --from=build /opt/edgefl /opt/edgefl
RUN useradd --system --uid 10001 --home-dir /var/lib/edgefl --create-home edgefl
ENV PATH=/opt/edgefl/bin:$PATH PYTHONUNBUFFERED=1 EDGEFL_RUN__FOLDER=/var/lib/edgefl/runs \
    EDGEFL_BROKER__IDENTITY=/var/lib/edgefl/identity.key
USER 10001
WORKDIR /var/lib/edgefl
VOLUME /var/lib/edgefl
ENTRYPOINT ["edgefl"]
CMD ["coordinator", "start", "/etc/edgefl/run.toml", "--log", "info"]
