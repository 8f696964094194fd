# syntax=docker/dockerfile:1
# gemmtune on Debian 12: `docker build -t gemmtune .`, then `docker run --rm gemmtune devices` (--gpus all: with NVIDIA's GPUs).
# tools/test_packages.sh runs these steps without Docker.
FROM debian:bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends git make ca-certificates
COPY . /gemmtune
WORKDIR /gemmtune
RUN make deps installed && tools/install_dependencies.sh package && cpack --config build/CPackConfig.cmake -B build/packages

FROM debian:bookworm-slim
COPY --from=build /gemmtune/build/packages/gemmtune_*.deb /tmp/
RUN apt-get update && apt-get install --yes --no-install-recommends /tmp/gemmtune_*.deb && rm -rf /tmp/gemmtune_*.deb /var/lib/apt/lists/*
ENTRYPOINT ["gemmtune"]
CMD ["--help"]
