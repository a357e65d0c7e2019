"""Nobody speaks to a party, or passes for one, without that party's certificate of the right CA."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from common.errors import ColonnadeError, ConfigError, PeerRefused, PeerUnreachable
from common.rpc import certs
from common.rpc.channels import open_channel, peer_errors
from common.rpc.greeting import make_greeting
from common.rpc.pb.passive_party_pb2_grpc import PassivePartyStub
from common.rpc.tls import Security
from common.rpc.wiretap import Wiretap
from tests.rpc.parties import (
    CALL_S,
    PassivePartyForTests,
    Unchecked,
    certified,
    dialled,
    greeted,
    raw_channel,
    serving,
)

LONG_AGO = datetime.now(UTC) - timedelta(days=1000)
GREETING = make_greeting("party_b", "active")


@dataclass(frozen=True, slots=True)
class Victim:
    """party_a, serving for party_b only; `directory` holds the CA that issued both certificates."""

    address: str
    directory: Path
    servicer: PassivePartyForTests
    at_a: Security
    at_b: Security

    def issue(self, party: str, *hosts: str) -> Security:
        return Security(certs.issue(self.directory, party, hosts))


@pytest.fixture
async def victim(tmp_path: Path) -> AsyncIterator[Victim]:
    """A party that must have served nobody but party_b, and serves party_b after every attack."""
    at_a, at_b = certified(tmp_path / "ca", "party_a", "party_b")
    servicer = PassivePartyForTests()
    async with serving(at_a, servicer) as address:
        yield Victim(address, tmp_path / "ca", servicer, at_a, at_b)
        assert servicer.callers == []
        assert await greeted(address, at_b) == "party_a"
        assert servicer.callers == ["party_b"]


async def attempt(address: str, security: Security, own: str = "party_b", peer: str = "party_a") -> None:
    async with dialled(address, security, own, peer=peer) as stub:
        await stub.Greet(GREETING, timeout=CALL_S)


async def test_a_client_of_another_ca_is_refused(victim: Victim, tmp_path: Path) -> None:
    certified(tmp_path / "other", "party_b")
    forged = certs.TlsFiles(
        victim.directory / "ca.pem", tmp_path / "other/party_b.pem", tmp_path / "other/party_b.key"
    )
    with pytest.raises(PeerUnreachable, match="party_a cannot be reached"):
        await attempt(victim.address, Unchecked(forged))


async def test_a_server_of_another_ca_is_refused(victim: Victim, tmp_path: Path) -> None:
    (impostor,) = certified(tmp_path / "other", "party_a")
    async with serving(impostor) as address:
        with pytest.raises(PeerUnreachable, match="not of our CA"):
            await attempt(address, victim.at_b)


async def test_a_client_without_certificate_is_refused(victim: Victim) -> None:
    credentials = grpc.ssl_channel_credentials((victim.directory / "ca.pem").read_bytes())
    options = [("grpc.ssl_target_name_override", "party_a")]
    async with grpc.aio.secure_channel(victim.address, credentials, options) as channel:
        with pytest.raises(PeerUnreachable), peer_errors("party_a", victim.address):
            await PassivePartyStub(channel).Greet(GREETING, timeout=CALL_S)


async def test_another_party_of_the_same_ca_is_refused(victim: Victim) -> None:
    with pytest.raises(PeerRefused, match="mallory may not make this call"):
        await attempt(victim.address, victim.issue("mallory"), own="mallory")


async def test_saying_to_be_somebody_else_in_metadata_changes_nothing(victim: Victim) -> None:
    async with raw_channel(victim.address, victim.issue("mallory")) as channel:
        call = PassivePartyStub(channel).Greet(GREETING, timeout=CALL_S, metadata=(("vfl-party", "party_b"),))
        with pytest.raises(PeerRefused, match="mallory"), peer_errors("party_a", victim.address):
            await call


async def test_a_host_name_in_a_certificate_is_not_an_identity(victim: Victim, tmp_path: Path) -> None:
    """A careless CA put party_b among mallory's host names; ours would not, see below."""
    (victim.directory / "party_b.pem").rename(tmp_path / "kept.pem")
    careless = victim.issue("mallory", "party_b")
    (tmp_path / "kept.pem").rename(victim.directory / "party_b.pem")
    with pytest.raises(PeerRefused, match="mallory"):
        await attempt(victim.address, careless, own="mallory")


async def test_our_ca_does_not_put_one_party_among_the_host_names_of_another(victim: Victim) -> None:
    with pytest.raises(ConfigError, match="name of another party"):
        victim.issue("mallory", "party_b")
    victim.issue("mallory", "party_c")
    with pytest.raises(ConfigError, match="host name in another certificate"):
        victim.issue("party_c")


async def test_a_server_that_is_another_party_is_refused(victim: Victim) -> None:
    with pytest.raises(PeerUnreachable, match="certificate of another party"):
        await attempt(victim.address, victim.at_b, peer="coordinator")


def expired(victim: Victim, party: str) -> Security:
    files = certs.issue(victim.directory, party, days=30, existing="replace", now=LONG_AGO)
    return Unchecked(files)


async def test_an_expired_client_is_refused(victim: Victim) -> None:
    with pytest.raises(PeerUnreachable):
        await attempt(victim.address, expired(victim, "party_b"))
    certs.issue(victim.directory, "party_b", existing="replace")


async def test_an_expired_server_is_refused(victim: Victim) -> None:
    async with serving(expired(victim, "party_a")) as address:
        with pytest.raises(PeerUnreachable, match="not valid today"):
            await attempt(address, victim.at_b)


async def test_a_party_does_not_start_with_an_expired_certificate(victim: Victim) -> None:
    files = expired(victim, "party_c").tls
    with pytest.raises(ConfigError, match="expired"):
        open_channel("party_a", victim.address, "party_c", Security(files), Wiretap())


async def test_a_party_does_not_start_with_the_certificate_of_another(victim: Victim) -> None:
    with pytest.raises(ConfigError, match="certificate is for party_b, but this party is party_a"):
        async with serving(victim.at_b):
            pass


async def test_a_plaintext_client_gets_nothing_from_a_tls_port(victim: Victim) -> None:
    with pytest.raises(PeerUnreachable):
        await attempt(victim.address, Security(None))


async def test_a_tls_client_says_nothing_to_a_plaintext_port(victim: Victim) -> None:
    plain = PassivePartyForTests()
    async with serving(Security(None), plain) as address:
        with pytest.raises(PeerUnreachable, match="does not speak TLS"):
            await attempt(address, victim.at_b)
    assert plain.callers == []


@pytest.mark.parametrize("address", ["10.0.0.7:7001", "party-a:7001", "0.0.0.0:7001", "[::]:7001"])
async def test_plaintext_leaves_the_machine_in_neither_direction(address: str) -> None:
    with pytest.raises(ConfigError, match="loopback"):
        open_channel("party_a", address, "party_b", Security(None), Wiretap())
    with pytest.raises(ConfigError, match="loopback"):
        Security(None).verify("party_a", address)


async def test_without_tls_a_caller_that_is_not_listed_or_says_no_name_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(Security(None)) as address:
        assert "INSECURE" in caplog.text
        with pytest.raises(PeerRefused, match="mallory"):
            await attempt(address, Security(None), own="mallory")
        async with grpc.aio.insecure_channel(address) as channel:
            with (
                pytest.raises(PeerRefused, match="does not say which party"),
                peer_errors("party_a", address),
            ):
                await PassivePartyStub(channel).Greet(GREETING, timeout=CALL_S)
        assert await greeted(address, Security(None)) == "party_a"


async def test_the_caller_is_judged_before_its_message_is_read(victim: Victim) -> None:
    """mallory's garbage is answered with who it is, not with what it sent."""
    async with raw_channel(victim.address, victim.issue("mallory")) as channel:
        method: Any = channel.unary_unary("/vfl.v1.PassiveParty/OpenJob")
        with pytest.raises(ColonnadeError, match="mallory") as caught, peer_errors("party_a", victim.address):
            await method(b"\xff\xff\xff", timeout=CALL_S)
    assert isinstance(caught.value, PeerRefused)
