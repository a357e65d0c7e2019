#!/bin/sh
# The demo's operator: submits the job to B's service, follows it, and leaves the report in ./out.
set -eu

vfl train -c /demo/job.yaml -p /etc/colonnade/party.yaml --out /out
# A report is for its owner's eyes; here the owner is the person who typed `docker compose up`, under another number.
chmod a+r /out/*
echo "On this machine the files lie in ./out; the three services run on until Ctrl-C."
