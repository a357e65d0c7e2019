#!/bin/sh
# Throw-away certificates for the demo of docker-compose.yml: one folder a party, each with what that party needs.
# Runs as root in its container. Certificates of an earlier run stay: services that use them may be running.
set -eu

OWNER=10001:10001 # the user of the image
umask 077

# The demo's report is written by that user into a folder that Docker has made as root.
chmod 0777 /out

if [ -e /certificates/party_a/party_a.key ]; then
    echo "certificates of an earlier run are kept; docker compose down --volumes throws them away"
    exit 0
fi

all=$(mktemp -d)
vfl certs init "$all" --party party_a --party party_b --party coordinator >/dev/null
for party in party_a party_b coordinator; do
    folder=/certificates/$party
    # The key comes last: a party that waits for it then finds the rest.
    for file in ca.pem "$party.pem" "$party.key"; do
        cp "$all/$file" "$folder/.$file"
        chown "$OWNER" "$folder/.$file"
        mv "$folder/.$file" "$folder/$file"
    done
    chown "$OWNER" "$folder"
done
# Nobody can issue another certificate of this CA: its key lived in this container only.
rm -r "$all"
echo "throw-away certificates for party_a, party_b and coordinator are made"
