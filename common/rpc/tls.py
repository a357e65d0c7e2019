"""Certificates as files, and what gRPC needs of them: both sides of every connection show one."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from common.errors import ConfigError
from common.rpc.addresses import is_loopback

log = logging.getLogger("vfl.rpc")

EXPIRY_WARNING_DAYS = 30
"""Time enough to get a new certificate out of a company's own CA."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The three PEM files of a party; the key file stays on its premises."""

    ca: Path
    cert: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Security:
    """How a party protects its connections.

    Attributes:
        tls: The certificate files; None means plaintext, which is accepted on loopback addresses only.
    """

    tls: TlsFiles | None

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return credentials that demand a certificate of our CA from every client.

        Raises:
            ConfigError: There are no certificate files, or one cannot be read.
        """
        files = self._files()
        chain = [(_read(files.key), _read(files.cert))]
        return grpc.ssl_server_credentials(chain, _read(files.ca), require_client_auth=True)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Return credentials that show our certificate and trust our CA only.

        Raises:
            ConfigError: There are no certificate files, or one cannot be read.
        """
        files = self._files()
        return grpc.ssl_channel_credentials(_read(files.ca), _read(files.key), _read(files.cert))

    def verify(self, party: str, address: str) -> None:
        """Check that our own files fit together, belong to the party, and suit the address.

        Raises:
            ConfigError: They do not; or there are none, and the address is not loopback.
        """
        if self.tls is not None:
            verify_files(self.tls, party, datetime.now(UTC))
        elif not is_loopback(address):
            raise ConfigError(
                f"{party} has no certificates, so {address} must be a loopback address",
                advice="configure `tls: {ca, cert, key}` (`vfl certs` makes them) or use 127.0.0.1",
            )

    def _files(self) -> TlsFiles:
        if self.tls is None:
            raise ConfigError(
                "there are no certificates configured", advice="configure `tls: {ca, cert, key}`"
            )
        return self.tls


_MAKE_CERTIFICATES = (
    "correct the path under `tls`, or make certificates: for a trial `vfl certs init certs --party NAME …`"
)


def certificate_name(path: Path) -> str:
    """Return the party that the certificate in a PEM file is for.

    Raises:
        ConfigError: The file cannot be read or is not a party's certificate.
    """
    return party_of(load_certificate(path), str(path))


def certificate_expiry(path: Path) -> datetime:
    """Return the last moment (UTC) at which the certificate in a PEM file is valid."""
    return load_certificate(path).not_valid_after_utc


def party_of(certificate: x509.Certificate, where: str) -> str:
    """Return the party that a certificate is for: its common name, repeated as a DNS name.

    Further DNS names and addresses may stand beside it; they are for tools that check host names.

    Raises:
        ConfigError: There is not exactly one common name, or it is not among the DNS names.
    """
    names = [attribute.value for attribute in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if len(names) != 1 or names[0] not in dns_names(certificate):
        raise ConfigError(
            "the certificate names no party",
            where=where,
            advice="its common name must be the party's name, and be among its subject alternative DNS names",
        )
    return str(names[0])


def dns_names(certificate: x509.Certificate) -> list[str]:
    """Return the DNS names among a certificate's subject alternative names."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return extension.value.get_values_for_type(x509.DNSName)


def load_certificate(path: Path) -> x509.Certificate:
    """Return the (first) certificate in a PEM file.

    Raises:
        ConfigError: The file cannot be read or holds none.
    """
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError as exc:
        raise ConfigError(
            "the file holds no certificate in PEM form",
            where=str(path),
            advice="name the certificate here, whose text begins with BEGIN CERTIFICATE",
        ) from exc


def verify_files(files: TlsFiles, party: str, now: datetime) -> None:
    """Check that a party's certificate, key and CA fit together at a moment.

    Raises:
        ConfigError: Names the file that is wrong, and how.
    """
    certificate, authority = load_certificate(files.cert), load_certificate(files.ca)
    name = party_of(certificate, str(files.cert))
    if name != party:
        raise ConfigError(
            f"the certificate is for {name}, but this party is {party}",
            where=str(files.cert),
            advice=f"name {party}'s own certificate and key under `tls`, or correct `party`",
        )
    _require_own_key(files, certificate)
    _require_valid(certificate, files.cert, now)
    _require_valid(authority, files.ca, now)
    if b"".join(_read(files.ca).split()).count(b"-----BEGINCERTIFICATE-----") == 1:
        _require_issuer(files, certificate, authority)
    days_left = (certificate.not_valid_after_utc - now).days
    if days_left < EXPIRY_WARNING_DAYS:
        log.warning("the certificate of %s expires in %d days: %s", party, days_left, files.cert)


def _require_own_key(files: TlsFiles, certificate: x509.Certificate) -> None:
    try:
        key = load_pem_private_key(_read(files.key), password=None)
    except (ValueError, TypeError) as exc:
        raise ConfigError(
            "the file holds no unencrypted private key in PEM form",
            where=str(files.key),
            advice="name the certificate's key here; a service cannot ask for a passphrase",
        ) from exc
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(*form) != certificate.public_key().public_bytes(*form):
        raise ConfigError(
            f"the private key does not belong to {files.cert}",
            where=str(files.key),
            advice="name the certificate and the key that were issued together",
        )


def _require_valid(certificate: x509.Certificate, path: Path, now: datetime) -> None:
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > last:
        raise ConfigError(
            f"the certificate expired on {last:%Y-%m-%d %H:%M} UTC",
            where=str(path),
            advice="issue a new one, for example with `vfl certs`",
        )
    if now < first:
        raise ConfigError(
            f"the certificate is not valid before {first:%Y-%m-%d %H:%M} UTC",
            where=str(path),
            advice="is this machine's clock right?",
        )


def _require_issuer(files: TlsFiles, certificate: x509.Certificate, authority: x509.Certificate) -> None:
    """Check the signature of a lone CA; the way through a bundle is left to the TLS handshake."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature) as exc:
        raise ConfigError(
            f"the certificate was not issued by the CA in {files.ca}",
            where=str(files.cert),
            advice="take both from one authority: after a new CA every party needs a new certificate",
        ) from exc


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as exc:
        raise ConfigError(
            f"the file cannot be read: {exc.strerror}", where=str(path), advice=_MAKE_CERTIFICATES
        ) from exc
    except OSError as exc:
        raise ConfigError(
            f"the file cannot be read: {exc.strerror}",
            where=str(path),
            advice="its owner must be the user that runs this, who alone may read a key",
        ) from exc
