#!/usr/bin/env bash
# Runs docker-compose.yml for real on a Debian machine that reaches no image registry: `sudo scripts/docker_without_registry.sh`.
#
# Installs Docker and debootstrap from Debian, starts a Docker daemon of its own (own socket, own storage, no firewall
# rules), makes the base image that the Dockerfile names from the Debian mirror in use, builds, runs the demo job over
# three containers, checks what it left behind, then runs party A alone as one company would. It ends with removing
# everything but the packages. Some five minutes; 3 GB below /var/tmp while it runs.
set -euo pipefail
cd "$(dirname "$0")/.."

PACKAGES=(docker.io docker-compose debootstrap)
PARTIES=(party_a party_b coordinator)
DEMO_LIMIT_S=600
HEALTHY_LIMIT_S=90

say() { printf '\n== %s\n' "$*"; }

fail() {
    echo "error: $*" >&2
    exit 1
}

work=$(mktemp -d /var/tmp/colonnade-docker.XXXXXX)
export DOCKER_HOST=unix://$work/docker.sock DOCKER_BUILDKIT=1
export COMPOSE_PROJECT_NAME=colonnade-check DEMO_OUT=$work/out
# Host ports are left to Docker, so that nothing else on this machine is in the way.
export PARTY_A_PUBLISH=127.0.0.1: PARTY_B_PUBLISH=127.0.0.1: COORDINATOR_PUBLISH=127.0.0.1:
# Debian's client comes with BuildKit built in; another one on the PATH may lack it.
export PATH=/usr/bin:/usr/sbin:$PATH

clean_up() {
    set +e
    if [ -S "$work/docker.sock" ] && [ -n "${COMPOSE:-}" ]; then
        "${COMPOSE[@]}" down --volumes --remove-orphans >/dev/null 2>&1
    fi
    if [ -s "$work/docker.pid" ]; then
        daemon=$(cat "$work/docker.pid")
        kill "$daemon"
        for _ in $(seq 30); do kill -0 "$daemon" 2>/dev/null || break; sleep 1; done
    fi
    # A container in the host's network leaves this mount behind.
    umount "$work/exec/netns/default" 2>/dev/null
    rm -rf "$work"
}
trap clean_up EXIT

install_packages() {
    say "packages: ${PACKAGES[*]}"
    dpkg -s "${PACKAGES[@]}" >/dev/null 2>&1 && return
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${PACKAGES[@]}" >/dev/null
}

start_daemon() {
    say "a Docker daemon in $work"
    dockerd --host "$DOCKER_HOST" --data-root "$work/data" --exec-root "$work/exec" --pidfile "$work/docker.pid" \
        --bridge=none --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false \
        >"$work/dockerd.log" 2>&1 &
    for _ in $(seq 60); do
        docker version >/dev/null 2>&1 && break
        sleep 1
    done
    COMPOSE=(docker-compose)
    docker compose version >/dev/null 2>&1 && COMPOSE=(docker compose)
    "${COMPOSE[@]}" version | sed -n 1p
    docker info --format '{{.ServerVersion}}, storage {{.Driver}}, cgroup v{{.CgroupVersion}}' || {
        tail -20 "$work/dockerd.log" >&2
        fail "dockerd does not start on this machine"
    }
}

make_base_image() {
    local tag mirror
    tag=$(sed -n 's/^ARG BASE_IMAGE=//p' Dockerfile)
    # shellcheck disable=SC2016  # apt-get fills in $(SITE)
    mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Codename: bookworm' 'Label: Debian' | sed -n 1p)
    say "$tag from $mirror"
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates \
        bookworm "$work/root" "$mirror" >"$work/debootstrap.log" || { tail -20 "$work/debootstrap.log" >&2; fail "debootstrap failed"; }
    tar --create --directory "$work/root" --exclude ./var/cache/apt --exclude ./var/lib/apt/lists . | docker import - "$tag"
    rm -rf "$work/root"
}

build() {
    say "docker build"
    local secrets=()
    [ -r /etc/pip.conf ] && secrets+=(--secret "id=pip_conf,src=/etc/pip.conf")
    [ -r /etc/ssl/certs/ca-certificates.crt ] && secrets+=(--secret "id=ca_bundle,src=/etc/ssl/certs/ca-certificates.crt")
    docker build --network host --progress plain --tag colonnade "${secrets[@]}" . >"$work/build.log" 2>&1 || {
        tail -40 "$work/build.log" >&2
        fail "docker build failed"
    }
    docker images --format '{{.Repository}}:{{.Tag}} {{.Size}}'
}

await_healthy() {
    local container
    container=$("${COMPOSE[@]}" ps -q "$1")
    for _ in $(seq "$HEALTHY_LIMIT_S"); do
        [ "$(docker inspect --format '{{.State.Health.Status}}' "$container")" = healthy ] && return
        sleep 1
    done
    docker inspect --format '{{json .State.Health}}' "$container" >&2
    "${COMPOSE[@]}" logs --no-color "$1" >&2
    fail "$1 is not healthy after $HEALTHY_LIMIT_S s"
}

run_demo() {
    say "docker compose up"
    # With job control, the command gets a process group of its own, to which Ctrl-C can be sent.
    set -m
    "${COMPOSE[@]}" up --no-build >"$work/up.log" 2>&1 &
    attached=$!
    set +m
    local demo="" status=""
    for _ in $(seq "$DEMO_LIMIT_S"); do
        kill -0 "$attached" 2>/dev/null || { cat "$work/up.log" >&2; fail "docker compose up ended by itself"; }
        [ -n "$demo" ] || demo=$("${COMPOSE[@]}" ps --all --quiet demo 2>/dev/null || true)
        status=$(docker inspect --format '{{.State.Status}} {{.State.ExitCode}}' "${demo:-none}" 2>/dev/null || true)
        [[ $status == exited* ]] && break
        sleep 1
    done
    [ "$status" = "exited 0" ] || { cat "$work/up.log" >&2; fail "the demo did not end well: ${status:-never started}"; }
    docker logs "$demo"
}

check_demo() {
    say "what the demo left behind"
    ls -l "$DEMO_OUT"
    [ -z "$(find "$DEMO_OUT" -type f ! -perm -o=r)" ] || fail "the report cannot be read on this machine"
    python3 - "$DEMO_OUT/report.json" <<'PYTHON'
import json, sys
report = json.load(open(sys.argv[1], encoding="utf-8"))
losses = report["loss_history"]
print(f'{report["job"]}: {report["rounds"]} rounds, loss {losses[0]:.1f} -> {losses[-1]:.1f}, lift {report["lift"]}')
if not losses[-1] < losses[0]:
    raise SystemExit("error: the loss did not fall")
PYTHON
    for party in "${PARTIES[@]}"; do
        await_healthy "$party"
        echo "$party: user $("${COMPOSE[@]}" exec -T "$party" id -u), sees $("${COMPOSE[@]}" exec -T "$party" sh -c \
            'ls /etc/colonnade/certificates /srv/colonnade/data | tr "\n" " "')"
        [ "$("${COMPOSE[@]}" exec -T "$party" id -u)" != 0 ] || fail "$party runs as root"
        ! "${COMPOSE[@]}" exec -T "$party" touch /etc/colonnade/certificates/x 2>/dev/null || fail "$party can write its certificates"
    done
}

check_stop() {
    say "Ctrl-C"
    kill -INT -- "-$attached"
    wait "$attached" || true
    local party state
    for party in "${PARTIES[@]}"; do
        state=$(docker inspect --format '{{.State.Status}} {{.State.ExitCode}}' "$("${COMPOSE[@]}" ps --all --quiet "$party")")
        echo "$party: $state"
        [ "$state" = "exited 0" ] || fail "$party did not stop by itself at SIGTERM"
    done
}

check_one_company() {
    say "docker compose up party_a, with party A's own folder and nothing else"
    local ours=$work/ours volume
    # What A's administrator would have got from the CA is taken from the demo's volume.
    volume=$(docker volume inspect --format '{{.Mountpoint}}' "${COMPOSE_PROJECT_NAME}_party_a_certificates")
    mkdir -p "$ours"
    cp -a "$volume" "$ours/certificates"
    cp configs/docker/party_a.yaml configs/data/diabetes_a.csv "$ours/"
    "${COMPOSE[@]}" down --volumes >/dev/null 2>&1
    export PARTY_A_CONFIG=$ours/party_a.yaml PARTY_A_CERTIFICATES=$ours/certificates PARTY_A_DATA=$ours/diabetes_a.csv
    "${COMPOSE[@]}" up --detach --no-build party_a
    await_healthy party_a
    [ "$(docker ps --quiet | wc -l)" = 1 ] || fail "more than party A was started"
    docker ps --format '{{.Names}}: {{.Status}}, {{.Ports}}'
    docker inspect --format '{{range .Mounts}}{{.Destination}} ({{if .RW}}rw{{else}}ro{{end}}) <- {{.Source}}{{println}}{{end}}' \
        "$("${COMPOSE[@]}" ps -q party_a)"
}

[ "$(id -u)" = 0 ] || fail "Docker's daemon needs root"
command -v apt-get >/dev/null || fail "this script is for Debian; elsewhere, install Docker and type: docker compose up"
install_packages
start_daemon
make_base_image
build
run_demo
check_demo
check_stop
check_one_company
say "all is well"
