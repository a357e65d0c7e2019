#!/bin/sh
# Waits for the party's private key, then becomes `vfl serve`.
#
# The demo makes its certificates in a container of its own. A party cannot depend on that container, because
# `docker compose up party_a` must start party A and nothing else; so it waits for what it needs.
set -eu

CERTIFICATES=/etc/colonnade/certificates
PATIENCE_S=30

waited=0
until ls "$CERTIFICATES"/*.key >/dev/null 2>&1; do
    if [ "$waited" -ge "$PATIENCE_S" ]; then
        echo "error: no private key in $CERTIFICATES after $PATIENCE_S s" >&2
        echo "  Mount the folder with this party's ca.pem, certificate and key there; \`vfl certs\` makes them." >&2
        exit 2
    fi
    sleep 1
    waited=$((waited + 1))
done
exec vfl serve -c /etc/colonnade/party.yaml "$@"
