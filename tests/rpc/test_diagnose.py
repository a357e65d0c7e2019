"""The preflight says which step to a peer fails, and why."""

from __future__ import annotations

import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from common.rpc import certs
from common.rpc.diagnose import Finding, Route, diagnose
from common.rpc.greeting import make_greeting
from common.rpc.pb import job_pb2 as job
from common.rpc.tls import Security
from tests.rpc.parties import PassivePartyForTests, Unchecked, certified, serving

LONG_AGO = datetime.now(UTC) - timedelta(days=1000)


class Late(PassivePartyForTests):
    """A party whose clock is behind, or whose version is another."""

    def __init__(self, behind_s: float = 0.0, version: int = 1) -> None:
        super().__init__()
        self._behind_s = behind_s
        self._version = version

    async def Greet(self, request: job.Greeting, context: Any) -> job.Greeting:  # noqa: N802
        greeting = make_greeting("party_a", "passive")
        greeting.unix_time_s -= self._behind_s
        greeting.protocol_version = self._version
        return greeting


@pytest.fixture
def route(tmp_path: Path) -> Route:
    """From party_b to party_a, whose address is filled in by each test."""
    _, at_b = certified(tmp_path, "party_a", "party_b")
    return Route("party_a", "127.0.0.1:0", "party_b", "active", at_b, "passive", timeout_s=2.0)


def at_a(tmp_path: Path, directory: str = ".") -> Security:
    where = tmp_path / directory
    return Security(certs.TlsFiles(where / "ca.pem", where / "party_a.pem", where / "party_a.key"))


async def failed(route: Route) -> Finding:
    """Return the one failed finding, which is the last one."""
    findings = await diagnose(route)
    assert [finding.ok for finding in findings] == [True] * (len(findings) - 1) + [False]
    assert findings[-1].advice
    return findings[-1]


async def test_a_peer_that_is_well_passes_every_step(route: Route, tmp_path: Path) -> None:
    async with serving(at_a(tmp_path)) as address:
        findings = await diagnose(replace(route, address=address))
    assert [finding.name for finding in findings] == [
        "name",
        "port",
        "tls",
        "certificate",
        "greeting",
        "clock",
    ]
    assert all(finding.ok for finding in findings)


async def test_an_unknown_host_name_is_told(route: Route) -> None:
    finding = await failed(replace(route, address="no-such-host.invalid:7001"))
    assert (finding.name, "no-such-host.invalid cannot be resolved" in finding.detail) == ("name", True)


async def test_a_closed_port_is_told(route: Route) -> None:
    finding = await failed(replace(route, address="127.0.0.1:1"))
    assert (finding.name, finding.detail) == ("port", "nothing listens at 127.0.0.1:1")


async def test_a_port_without_tls_is_told(route: Route) -> None:
    async with serving(Security(None)) as address:
        finding = await failed(replace(route, address=address))
    assert finding.name == "tls"
    assert "does not speak TLS" in finding.detail


async def test_a_port_that_never_answers_is_told(route: Route) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        finding = await failed(replace(route, address=f"127.0.0.1:{mute.getsockname()[1]}", timeout_s=0.5))
    assert finding.name == "tls"


async def test_a_server_of_another_ca_is_told(route: Route, tmp_path: Path) -> None:
    certified(tmp_path / "other", "party_a")
    async with serving(at_a(tmp_path, "other")) as address:
        finding = await failed(replace(route, address=address))
    assert finding.name == "tls"
    assert "we do not accept the certificate of party_a" in finding.detail


async def test_an_expired_server_is_told(route: Route, tmp_path: Path) -> None:
    files = certs.issue(tmp_path, "party_a", days=30, existing="replace", now=LONG_AGO)
    async with serving(Unchecked(files)) as address:
        finding = await failed(replace(route, address=address))
    assert "expired" in finding.detail


async def test_our_own_expired_certificate_is_told_before_anybody_is_dialled(
    route: Route, tmp_path: Path
) -> None:
    files = certs.issue(tmp_path, "party_b", days=30, existing="replace", now=LONG_AGO)
    async with serving(at_a(tmp_path)) as address:
        finding = await failed(replace(route, address=address, security=Security(files)))
    assert "expired" in finding.detail
    assert str(files.cert) in finding.detail


async def test_a_peer_that_does_not_know_our_ca_is_told(route: Route, tmp_path: Path) -> None:
    certified(tmp_path / "other", "party_b")
    files = certs.TlsFiles(
        tmp_path / "ca.pem", tmp_path / "other/party_b.pem", tmp_path / "other/party_b.key"
    )
    async with serving(at_a(tmp_path)) as address:
        finding = await failed(replace(route, address=address, security=Unchecked(files)))
    assert finding.name == "tls"
    assert "CA" in finding.detail or "accept our certificate" in finding.advice


async def test_another_party_at_the_address_is_told(route: Route, tmp_path: Path) -> None:
    async with serving(at_a(tmp_path)) as address:
        finding = await failed(replace(route, peer="coordinator", address=address))
    assert (finding.name, finding.detail) == ("certificate", "the server there is party_a, not coordinator")


async def test_a_peer_that_does_not_list_us_is_told(route: Route, tmp_path: Path) -> None:
    async with serving(at_a(tmp_path), peers=["coordinator"]) as address:
        finding = await failed(replace(route, address=address))
    assert finding.name == "greeting"
    assert "party_b may not make this call" in finding.detail


async def test_another_role_and_another_version_are_told(route: Route, tmp_path: Path) -> None:
    async with serving(at_a(tmp_path)) as address:
        finding = await failed(replace(route, address=address, peer_role="coordinator"))
    assert "party_a should be coordinator" in finding.detail
    async with serving(at_a(tmp_path), Late(version=2)) as address:
        finding = await failed(replace(route, address=address))
    assert "protocol version 2" in finding.detail


async def test_a_clock_that_is_off_by_more_than_a_minute_is_told(route: Route, tmp_path: Path) -> None:
    async with serving(at_a(tmp_path), Late(behind_s=90)) as address:
        finding = await failed(replace(route, address=address))
    assert finding.name == "clock"
    assert "90.0 s behind ours" in finding.detail
