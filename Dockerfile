# A small image of Pubstorm, with the engine and the embedded broker:
#
#     docker build --tag pubstorm .
#     docker run --rm --init --ulimit nofile=1048576 --volume runs:/data/runs pubstorm run quickstart
#
# deploy/compose.yaml plays a load on another broker, docs/how-to/install.md says more.

# The programs, built for this image: Debian 12 here and below, so both have the same libraries.
FROM rust:1.95-slim-bookworm AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ make perl python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY requirements.txt ./
RUN python3 -m venv /tools \
    && /tools/bin/pip install --no-cache-dir --require-hashes -r requirements.txt
COPY Cargo.toml Cargo.lock pyproject.toml hatch_build.py README.md LICENSE ./
COPY .cargo .cargo
COPY crates crates
COPY contract contract
COPY recipes recipes
COPY scenarios scenarios
COPY sheets sheets
COPY python python
RUN /tools/bin/python -m hatchling build --target wheel --directory /wheel

FROM python:3.11-slim-bookworm AS install
COPY --from=build /source/requirements.txt /wheel/*.whl /packages/
RUN python -m venv /opt/pubstorm \
    && /opt/pubstorm/bin/pip install --no-cache-dir --require-hashes -r /packages/requirements.txt \
    && /opt/pubstorm/bin/pip install --no-cache-dir --no-deps /packages/*.whl

FROM python:3.11-slim-bookworm
COPY --from=install /opt/pubstorm /opt/pubstorm
RUN ln -s /opt/pubstorm/bin/pubstorm /usr/local/bin/pubstorm \
    && useradd --uid 10001 --create-home pubstorm \
    && install --directory --owner pubstorm --group pubstorm /data /data/runs
USER 10001
WORKDIR /data
VOLUME /data/runs
ENTRYPOINT ["pubstorm"]
CMD ["--help"]
