"""Ask the service in this container whether it is well: `container_health.py PARTY.yaml`, exit code 0 or 1.

It dials the port that the party file names, with the party's own certificate, so a certificate that peers
would refuse makes the container unhealthy too.
"""

from __future__ import annotations

import sys
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from common.errors import ColonnadeError
from common.rpc.addresses import join_address, split_address
from common.rpc.tls import Security, TlsFiles
from common.runtime.config.party import PartyConfig, load_party

# Docker's own limit for the whole check is 10 s; most of the rest goes into starting Python.
CALL_S = 5.0
# Certificates hold a party's name, not the address under which it is dialled.
NAME_OVERRIDE = "grpc.ssl_target_name_override"
# A service that listens everywhere is asked on loopback.
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


def open_channel(config: PartyConfig) -> grpc.Channel:
    """Return a channel to this party's own port, past any proxy that the container knows."""
    host, port = split_address(config.listen)
    address = join_address(ANY_ADDRESS.get(host, host), port)
    options = [(NAME_OVERRIDE, config.party), ("grpc.enable_http_proxy", 0)]
    tls = config.tls
    if tls is None or tls.ca is None or tls.cert is None or tls.key is None:
        return grpc.insecure_channel(address, options=options)
    credentials = Security(TlsFiles(tls.ca, tls.cert, tls.key)).channel_credentials()
    return grpc.secure_channel(address, credentials, options=options)


def main() -> int:
    """Print the service's state in one word; Docker keeps it in the container's health log."""
    try:
        with open_channel(load_party(Path(sys.argv[1]))) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            reply = stub.Check(health_pb2.HealthCheckRequest(), timeout=CALL_S)
    except ColonnadeError as exc:
        print(exc.block())
        return 1
    except grpc.RpcError as exc:
        print(exc.code().name, exc.details())
        return 1
    print(health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status))
    return 0 if reply.status == health_pb2.HealthCheckResponse.SERVING else 1


if __name__ == "__main__":
    sys.exit(main())
