"""A small certificate authority: enough for parties that have none, and for one machine.

Companies that run a CA can issue the same certificates with it: the party's name as the only common name
and as a DNS name, extended key usage for server and client.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from common.errors import ConfigError
from common.rpc.tls import TlsFiles, dns_names, load_certificate

Existing = Literal["refuse", "replace"]

CA_DAYS = 3650
PARTY_DAYS = 397
"""Thirteen months: browsers' limit for server certificates, and a yearly renewal with time to spare."""

_CLOCK_SKEW = timedelta(minutes=10)
"""New certificates are valid from a little before now, for peers whose clocks are behind."""

_PARTY = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")
"""One DNS label of at most 63 characters, with underscores; also a safe file name."""


@dataclass(frozen=True, slots=True)
class CertificateSummary:
    """What a certificate says; `days_left` is negative once it has expired."""

    path: Path
    subject: str
    issuer: str
    names: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    days_left: int


def create_ca(
    directory: Path,
    name: str,
    days: int = CA_DAYS,
    *,
    existing: Existing = "refuse",
    now: datetime | None = None,
) -> Path:
    """Write `ca.pem` and `ca.key` and return the path of the certificate.

    The key signs for every party: it stays with whoever runs the CA and is not copied to services.

    Raises:
        ConfigError: There is one already, or the files cannot be written.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    builder = (
        _builder(subject, subject, key.public_key(), _lifetime(days, now))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage("certificates"), critical=True)
    )
    certificate = builder.sign(key, SHA256())
    _write_pair(directory / "ca", certificate, key, existing)
    return directory / "ca.pem"


def issue(
    directory: Path,
    party: str,
    hosts: Sequence[str] = (),
    days: int = PARTY_DAYS,
    *,
    existing: Existing = "refuse",
    now: datetime | None = None,
) -> TlsFiles:
    """Write `PARTY.pem` and `PARTY.key`, signed by the CA in the same directory.

    Args:
        directory: Where `ca.pem` and `ca.key` are.
        party: The party's name: it is what peers check.
        hosts: Host names and IP addresses to put beside it, for tools that check them; peers do not.
        days: How long it is valid.
        existing: Whether files of that name may be replaced.
        now: The clock.

    Raises:
        ConfigError: The names are not acceptable, the CA is missing, or the files cannot be written.
    """
    _require_names(directory, party, hosts)
    authority, authority_key = load_certificate(directory / "ca.pem"), _load_key(directory / "ca.key")
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.DNSName(party), *(_general_name(host) for host in hosts if host != party)]
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        _builder(_subject(party), authority.subject, key.public_key(), _lifetime(days, now))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage("handshakes"), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
    )
    _write_pair(directory / party, builder.sign(authority_key, SHA256()), key, existing)
    return TlsFiles(directory / "ca.pem", directory / f"{party}.pem", directory / f"{party}.key")


def show(paths: Sequence[Path], now: datetime | None = None) -> list[CertificateSummary]:
    """Return what the certificates in some PEM files say.

    Raises:
        ConfigError: A file cannot be read or holds no certificate.
    """
    moment = now or datetime.now(UTC)
    return [_summary(path, load_certificate(path), moment) for path in paths]


def _summary(path: Path, certificate: x509.Certificate, now: datetime) -> CertificateSummary:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = tuple(str(name.value) for name in extension.value)
    except x509.ExtensionNotFound:
        names = ()
    return CertificateSummary(
        path=path,
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        names=names,
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        days_left=(certificate.not_valid_after_utc - now).days,
    )


def _require_names(directory: Path, party: str, hosts: Sequence[str]) -> None:
    """Refuse names that could be taken for a file or, at a client, for another party."""
    if party == "ca" or not _PARTY.fullmatch(party):
        raise ConfigError(
            f"{party!r} cannot be a party's name",
            advice="use letters, digits, - and _, at most 63 characters; `ca` is taken",
        )
    issued = {path.stem: path for path in sorted(directory.glob("*.pem")) if path.stem not in ("ca", party)}
    for host in hosts:
        if host in issued:
            raise ConfigError(f"the host name {host} is the name of another party", where=str(issued[host]))
    for path in issued.values():
        if party in dns_names(load_certificate(path)):
            raise ConfigError(f"the name {party} is a host name in another certificate", where=str(path))


def _lifetime(days: int, now: datetime | None) -> tuple[datetime, datetime]:
    if days < 1:
        raise ConfigError(f"a certificate cannot be valid for {days} days", advice="give at least one day")
    moment = now or datetime.now(UTC)
    return moment - _CLOCK_SKEW, moment + timedelta(days=days)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    lifetime: tuple[datetime, datetime],
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(lifetime[0])
        .not_valid_after(lifetime[1])
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _subject(name: str) -> x509.Name:
    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    except ValueError as exc:
        raise ConfigError(f"{name!r} cannot be a certificate's name: {exc}") from exc


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as exc:
        raise ConfigError(f"{host!r} is neither a host name nor an IP address") from exc


def _key_usage(signs: Literal["certificates", "handshakes"]) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=signs == "handshakes",
        key_cert_sign=signs == "certificates",
        crl_sign=signs == "certificates",
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as exc:
        raise ConfigError(
            f"the CA's key cannot be read: {exc.strerror}", where=str(path), advice="create the CA first"
        ) from exc
    except (ValueError, TypeError) as exc:
        raise ConfigError("the file holds no open private key in PEM form", where=str(path)) from exc
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError("the CA's key is not an elliptic-curve key", where=str(path))
    return key


def _write_pair(
    stem: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, existing: Existing
) -> None:
    pem, key_path = stem.with_name(f"{stem.name}.pem"), stem.with_name(f"{stem.name}.key")
    present = [path for path in (pem, key_path) if path.exists()]
    if present and existing == "refuse":
        raise ConfigError(
            "the file exists already, and replacing it would cut off whoever uses it",
            where=str(present[0]),
            advice="choose another directory, or `vfl certs issue DIR --party NAME --replace` for one party",
        )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    _write(key_path, private, 0o600)
    _write(pem, certificate.public_bytes(Encoding.PEM), 0o644)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a file that never exists with wider permissions or half of its content."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        temporary.replace(path)
    except OSError as exc:
        raise ConfigError(f"the file cannot be written: {exc.strerror}", where=str(path)) from exc
