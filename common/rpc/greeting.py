"""The handshake: who is there, in which role, and whether both sides speak the same protocol."""

from __future__ import annotations

import importlib.metadata
import time

import grpc.aio

from common.errors import PeerRefused, Refused
from common.rpc.pb.active_party_pb2_grpc import ActivePartyStub
from common.rpc.pb.coordinator_pb2_grpc import CoordinatorStub
from common.rpc.pb.job_pb2 import Greeting
from common.rpc.pb.passive_party_pb2_grpc import PassivePartyStub
from common.types import Role

PROTOCOL_VERSION = 1
"""Grows whenever a message or a step changes so that two versions would misunderstand each other."""


def package_version() -> str:
    """Return the version of this installation; `0+source` where it runs without being installed."""
    try:
        return importlib.metadata.version("colonnade")
    except importlib.metadata.PackageNotFoundError:
        return "0+source"


def make_greeting(party: str, role: Role) -> Greeting:
    """Return what this party says of itself, with the clock of now."""
    return Greeting(
        protocol_version=PROTOCOL_VERSION,
        package_version=package_version(),
        party=party,
        role=role,
        unix_time_s=time.time(),
    )


def check_caller(greeting: Greeting, caller: str, role: Role | None = None) -> None:
    """Check, at the called side, that the caller is who it says and that we understand each other.

    Args:
        greeting: What the caller says.
        caller: Who it is by its certificate.
        role: The role it must have; None where any will do.

    Raises:
        Refused: With plain words about both sides.
    """
    reason = _mismatch(greeting, caller, role)
    if reason:
        raise Refused(reason, advice=_advice(greeting))


def check_greeting(
    greeting: Greeting, expected_party: str, expected_role: Role | None, address: str = ""
) -> None:
    """Check, at the calling side, that the right party answered and that we understand each other.

    Raises:
        PeerRefused: With plain words about both sides.
    """
    reason = _mismatch(greeting, expected_party, expected_role)
    if reason:
        raise PeerRefused(
            reason, where=address and f"{expected_party} at {address}", advice=_advice(greeting)
        )


async def greet(channel: grpc.aio.Channel, greeting: Greeting, timeout_s: float) -> Greeting:
    """Greet a peer of unknown role and return its answer.

    Raises:
        PeerError: It cannot be reached, or it offers none of the three services.
    """
    for stub in (PassivePartyStub(channel), CoordinatorStub(channel)):
        try:
            return await stub.Greet(greeting, timeout=timeout_s)
        except PeerRefused as exc:
            if not _is_unimplemented(exc):
                raise
    return await ActivePartyStub(channel).Greet(greeting, timeout=timeout_s)


def _is_unimplemented(exc: PeerRefused) -> bool:
    cause = exc.__cause__
    return isinstance(cause, grpc.aio.AioRpcError) and cause.code() is grpc.StatusCode.UNIMPLEMENTED


def _mismatch(greeting: Greeting, party: str, role: Role | None) -> str:
    if greeting.protocol_version != PROTOCOL_VERSION:
        return (
            f"{party} speaks protocol version {greeting.protocol_version} "
            f"(package {_word(greeting.package_version)}), "
            f"this side version {PROTOCOL_VERSION} (package {package_version()})"
        )
    if greeting.party != party:
        return f"expected {party}, but the other side calls itself {_word(greeting.party)}"
    if role is not None and greeting.role != role:
        return f"{party} should be {role}, but says that it is {_word(greeting.role)}"
    return ""


def _advice(greeting: Greeting) -> str:
    if greeting.protocol_version != PROTOCOL_VERSION:
        return "install the same version of colonnade at both sides"
    return "compare party and role in both party files with the job file"


def _word(text: str) -> str:
    """Return a word that the other side wrote, short and printable."""
    return repr(text[:64])
