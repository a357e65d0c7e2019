"""A party's gRPC server: mutual TLS, guarded services, health, reflection, keepalive."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from common.errors import ConfigError
from common.rpc.addresses import join_address, split_address
from common.rpc.channels import KEEPALIVE, Keepalive
from common.rpc.guard import Guard, Handler, require_async
from common.rpc.tls import Security
from common.rpc.wiretap import Wiretap

log = logging.getLogger("vfl.rpc")

_PINGS_MAY_COME_MS = 100
"""Clients ping every 10 s; the server must not take pings that a slow network has bunched for an attack."""

MOST_STREAMS = 512
"""Calls under way on one connection; further ones wait at the caller. 64 jobs need some four each, and a call
that says nothing takes 22 kB."""


class PartyServer:
    """Serves one party's services on one port."""

    def __init__(
        self,
        party: str,
        listen: str,
        security: Security,
        wiretap: Wiretap,
        peers: Collection[str],
        keepalive: Keepalive = KEEPALIVE,
    ) -> None:
        """Create a server; nothing is bound yet.

        Args:
            party: This party; its own certificate may call, too (that is its operator).
            listen: `host:port` to bind; port 0 takes any free one.
            security: Our certificates.
            wiretap: Counts, checks and shows what passes.
            peers: The other parties that may call at all. What each may call in which job is for the
                services to check (identity.require_caller).
            keepalive: How soon a silent network is noticed.
        """
        self._party = party
        self._listen = listen
        self._security = security
        guard = Guard(party, {party, *peers}, wiretap)
        self._server = grpc.aio.server(interceptors=[guard], options=_options(keepalive))
        self._health = HealthServicer()
        self._services: list[str] = []

    def add(
        self, register: Callable[[Any, Any], None], servicer: object, descriptor: ServiceDescriptor
    ) -> None:
        """Add a service before the start.

        Args:
            register: The generated `add_…Servicer_to_server`.
            servicer: Its methods are `async def`; streamed responses are yielded.
            descriptor: The service, for health and reflection.

        Raises:
            LocalProtocolError: A method is of another kind.
        """
        register(servicer, _Registry(self._server))
        self._services.append(descriptor.full_name)

    async def start(self) -> str:
        """Bind, start to serve, and return the bound `host:port`.

        Raises:
            ConfigError: Certificates or address are unusable.
        """
        self._security.verify(self._party, self._listen)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        known = (*self._services, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name)
        reflection.enable_server_reflection((*known, reflection.SERVICE_NAME), self._server)
        host, _ = split_address(self._listen)
        address = join_address(host, self._bind())
        await self._server.start()
        for name in self._services:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        if self._security.tls is None:
            log.warning(
                "INSECURE: %s serves %s without TLS; anyone on this machine can claim to be any party",
                self._party,
                address,
            )
        log.info("%s listens on %s", self._party, address)
        return address

    async def stop(self, grace_s: float) -> None:
        """Take no more calls, let running ones finish for `grace_s` seconds, then cancel them."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)

    def _bind(self) -> int:
        try:
            if self._security.tls is None:
                return self._server.add_insecure_port(self._listen)
            return self._server.add_secure_port(self._listen, self._security.server_credentials())
        except RuntimeError as exc:
            raise ConfigError(
                f"{self._party} cannot listen on {self._listen}",
                where="`listen` in the party file",
                advice="another process may use the port, or the address is not one of this machine's; "
                "`vfl check` says which",
            ) from exc


class _Registry:
    """Stands in for the server while a service registers itself, and checks what it brings."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        self._server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        for handler in handlers.values():
            require_async(handler)
        self._server.add_registered_method_handlers(service, handlers)


def _options(keepalive: Keepalive) -> list[tuple[str, int]]:
    return [
        *keepalive.options(),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _PINGS_MAY_COME_MS),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.max_concurrent_streams", MOST_STREAMS),
        # Two processes on one port would share the calls of a job between them; the second must fail.
        ("grpc.so_reuseport", 0),
    ]
