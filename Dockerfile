# One image for every party; which one a container is, its command and its mounted party file say.
#
#   docker build -t colonnade .
#
# What belongs to the machine that builds (a pip.conf with its package index, a private CA) may be handed in for the
# build alone and never enters a layer. A machine that reaches its index only from the host adds --network host:
#
#   docker build -t colonnade --network host --secret id=pip_conf,src=/etc/pip.conf \
#       --secret id=ca_bundle,src=/etc/ssl/certs/ca-certificates.crt .
#
# The official base image and a Debian bookworm of one's own under the same tag both do
# (scripts/docker_without_registry.sh): all that is asked of it is a python3 >= 3.11 with venv.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS builder
# Extras of pyproject.toml, for example EXTRAS=nn for networks (torch): --build-arg EXTRAS=nn,postgres
ARG EXTRAS=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/colonnade
WORKDIR /src
# Dependencies come first and alone, so that a change in our own code does not install them again.
COPY pyproject.toml constraints.txt ./
RUN python3 -c 'import sys, tomllib; \
project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
extras = [one for name in sys.argv[1].split(",") if name for one in project["optional-dependencies"][name]]; \
print(*project["dependencies"], *extras, sep="\n")' "${EXTRAS}" \
        > requirements.txt
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca_bundle,target=/etc/ssl/certs/ca-certificates.crt \
    /opt/colonnade/bin/pip install -c constraints.txt -r requirements.txt
COPY README.md LICENSE ./
COPY common common
COPY party_a party_a
COPY party_b party_b
COPY coordinator coordinator
COPY configs configs
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca_bundle,target=/etc/ssl/certs/ca-certificates.crt \
    /opt/colonnade/bin/pip install --no-deps . \
    && /opt/colonnade/bin/pip uninstall -y pip setuptools
COPY scripts/container_health.py scripts/container_serve.sh /opt/colonnade/libexec/

FROM ${BASE_IMAGE}
# The number is fixed so that an administrator can give a host directory to it.
RUN useradd --uid 10001 --no-create-home --home-dir /var/lib/colonnade --shell /usr/sbin/nologin colonnade \
    && install -d -m 0700 -o colonnade -g colonnade /var/lib/colonnade \
    && install -d /etc/colonnade/certificates /srv/colonnade/data
COPY --from=builder /opt/colonnade /opt/colonnade
# The root file system may be read-only: nothing is written but the state and /tmp.
ENV PATH=/opt/colonnade/bin:$PATH \
    MPLCONFIGDIR=/tmp/matplotlib \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER colonnade
WORKDIR /var/lib/colonnade
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=3 \
    CMD ["python", "-P", "/opt/colonnade/libexec/container_health.py", "/etc/colonnade/party.yaml"]
ENTRYPOINT ["vfl"]
CMD ["serve", "-c", "/etc/colonnade/party.yaml"]
