# The node and its drills, built from this checkout:
#
#   docker build -t ankusa .
#   docker run -p 4000:4000 -v ankusa:/var/lib/ankusa ankusa
#
# The cache mounts (BuildKit) keep the crates and the prebuilt RocksDB between builds.

FROM rust:1.95-bookworm AS build
WORKDIR /src
ENV ANKUSA_CACHE=/cache
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/cache \
    scripts/setup.sh \
    && rocksdb="$(scripts/build-rocksdb.sh)" \
    && eval "$rocksdb" \
    && cargo build --release --locked -p ankusa-node -p ankusa-drills -p ankusa-drills-shim \
    && install -D -t /out/bin target/release/ankusa target/release/ankusa-drills \
    && install -D -m 0644 -t /out/bin target/release/libankusa_drills_shim.so

# The same Debian as the build's: the binaries link its libc and libstdc++, and RocksDB statically.
FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates libstdc++6 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --user-group --uid 10001 --no-create-home --home-dir /var/lib/ankusa --shell /usr/sbin/nologin ankusa \
    && install -d -o ankusa -g ankusa -m 0750 /var/lib/ankusa
COPY --from=build /out/bin/ /usr/local/bin/
COPY config/ankusa.yml /etc/ankusa/ankusa.yml

ENV ANKUSA_CONFIG=/etc/ankusa/ankusa.yml \
    ANKUSA_DATA_DIR=/var/lib/ankusa
USER ankusa
VOLUME /var/lib/ankusa
# Ingest, and the admin port, which listens on loopback until ANKUSA_ADMIN_IP says otherwise.
EXPOSE 4000 4002
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s CMD ["ankusa", "healthcheck"]
ENTRYPOINT ["ankusa"]
CMD ["start"]
