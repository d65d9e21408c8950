# An image of the `levity` command: one static binary, the certificates of public authorities, and
# nothing else. There is no shell, so agents in it have no command tools.
#   docker build --tag levity .
#   docker run --read-only --publish 127.0.0.1:8080:8080 --volume levity-state:/data/state levity
# docs/deploy.md describes volumes, tokens and proxies.

FROM docker.io/library/rust:1.95-slim AS build
RUN apt-get update && \
    apt-get install --yes --no-install-recommends ca-certificates musl-tools && \
    rm -rf /var/lib/apt/lists/*
RUN rustup target add "$(uname -m)-unknown-linux-musl"
WORKDIR /src
COPY . .
RUN mkdir -p /out/data/state /out/data/runs /out/data/artifacts && \
    cp /etc/ssl/certs/ca-certificates.crt /out/ && \
    .ci/static /out/levity

FROM scratch
COPY --from=build /out/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/levity /usr/bin/levity
# The folders of the volumes belong to the user of the image. New volumes take over their owner.
COPY --from=build --chown=65532:65532 /out/data /data
# `state` holds the token, conversations and the marks of own runs; `runs` holds the journal;
# `artifacts` is the folder in which agents work.
ENV HOME=/data/state \
    XDG_STATE_HOME=/data/state \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    PATH=/usr/bin \
    LEVITY_LISTEN=0.0.0.0:8080
USER 65532:65532
WORKDIR /data/artifacts
VOLUME ["/data/state", "/data/runs", "/data/artifacts"]
EXPOSE 8080
STOPSIGNAL SIGTERM
# The check reads LEVITY_LISTEN, like the server. It needs no token and no other program.
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s --retries=3 \
    CMD ["/usr/bin/levity", "serve", "health"]
ENTRYPOINT ["/usr/bin/levity"]
# Publish the port on the loopback interface only, or put a proxy with TLS in front.
CMD ["serve", "http", "--allow-plaintext", \
    "--journal", "/data/runs/runs.db", "--memory", "/data/state/conversations.db"]
