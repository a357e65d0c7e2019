"""The small CA: what it writes, and what it will not."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from common.errors import ConfigError
from common.rpc import certs
from common.rpc.tls import Security, certificate_expiry, certificate_name, load_certificate, verify_files

NOW = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    certs.create_ca(tmp_path, "Test CA")
    return tmp_path


def test_keys_can_be_read_by_their_owner_only(ca: Path) -> None:
    certs.issue(ca, "party_a")
    assert sorted(path.name for path in ca.iterdir()) == ["ca.key", "ca.pem", "party_a.key", "party_a.pem"]
    for key in ca.glob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_a_party_certificate_is_for_both_ends_of_a_connection_and_signs_nothing(ca: Path) -> None:
    files = certs.issue(ca, "party_a", ["party-a", "127.0.0.1", "::1"])
    certificate = load_certificate(files.cert)
    extensions = certificate.extensions
    assert isinstance(certificate.public_key(), ec.EllipticCurvePublicKey)
    usages = set(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    assert usages == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    usage = extensions.get_extension_for_class(x509.KeyUsage).value
    assert (usage.digital_signature, usage.key_cert_sign) == (True, False)
    authority = load_certificate(ca / "ca.pem")
    certificate.verify_directly_issued_by(authority)
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0


def test_the_certificate_says_which_party_it_is_for_even_beside_host_names(ca: Path) -> None:
    files = certs.issue(ca, "party_a", ["a.example.org", "party-a"], days=10)
    assert certificate_name(files.cert) == "party_a"
    assert timedelta(days=9) < certificate_expiry(files.cert) - datetime.now(UTC) <= timedelta(days=10)


def test_show_tells_subject_names_issuer_and_days_left(ca: Path) -> None:
    files = certs.issue(ca, "party_a", ["party-a", "127.0.0.1"], days=10, now=NOW)
    (summary,) = certs.show([files.cert], NOW + timedelta(days=11))
    assert summary.subject == "CN=party_a"
    assert summary.issuer == "CN=Test CA"
    assert summary.names == ("party_a", "party-a", "127.0.0.1")
    assert summary.not_after == NOW + timedelta(days=10)
    assert summary.days_left == -1


def test_nothing_is_overwritten_unless_told(ca: Path) -> None:
    files = certs.issue(ca, "party_a")
    before = files.key.read_bytes(), (ca / "ca.key").read_bytes()
    with pytest.raises(ConfigError, match="exists already"):
        certs.issue(ca, "party_a")
    with pytest.raises(ConfigError, match="exists already"):
        certs.create_ca(ca, "Another CA")
    assert (files.key.read_bytes(), (ca / "ca.key").read_bytes()) == before
    certs.issue(ca, "party_a", existing="replace")
    assert files.key.read_bytes() != before[0]


@pytest.mark.parametrize("party", ["ca", "", "../party_a", "party a", "pärty", "-a", "a" * 64, "a.b"])
def test_a_name_that_is_no_party_name_gets_no_certificate(ca: Path, party: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a party's name"):
        certs.issue(ca, party)
    assert not list(ca.parent.glob("party_a*"))


def test_without_a_ca_there_is_no_certificate(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        certs.issue(tmp_path, "party_a")


def test_files_that_do_not_fit_together_are_named(ca: Path, tmp_path: Path) -> None:
    mine, theirs = certs.issue(ca, "party_a"), certs.issue(ca, "party_b")
    certs.create_ca(tmp_path / "other", "Other CA")
    now = datetime.now(UTC)
    verify_files(mine, "party_a", now)
    with pytest.raises(ConfigError, match="private key does not belong"):
        verify_files(certs.TlsFiles(mine.ca, mine.cert, theirs.key), "party_a", now)
    with pytest.raises(ConfigError, match="was not issued by"):
        verify_files(certs.TlsFiles(tmp_path / "other/ca.pem", mine.cert, mine.key), "party_a", now)
    with pytest.raises(ConfigError, match="no certificate in PEM form"):
        verify_files(certs.TlsFiles(mine.ca, mine.key, mine.key), "party_a", now)
    with pytest.raises(ConfigError, match="cannot be read"):
        verify_files(certs.TlsFiles(mine.ca, ca / "none.pem", mine.key), "party_a", now)
    with pytest.raises(ConfigError, match="not valid before"):
        verify_files(mine, "party_a", now - timedelta(days=1))


def test_a_certificate_about_to_expire_is_reported(ca: Path, caplog: pytest.LogCaptureFixture) -> None:
    Security(certs.issue(ca, "party_a", days=20)).verify("party_a", "127.0.0.1:0")
    assert "expires in 19 days" in caplog.text
