"""The party file: who we are, where we listen, what we hold, and what we agree to."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from common.errors import ConfigError
from common.rpc.addresses import is_loopback, join_address, split_address
from common.rpc.tls import Security, TlsFiles
from common.runtime.compute_dask import problem_of
from common.runtime.config.data import DatasetConfig
from common.runtime.config.errors import (
    MIN_KEY_BITS,
    UNSAFE_TEST_KEYS,
    FilePath,
    KeyBits,
    Name,
    Section,
    require,
    validated,
)
from common.runtime.config.yaml_source import Document, Problem, read_document
from common.types import Noise, Role

log = logging.getLogger("vfl.runtime")


def _checked_address(address: str) -> str:
    try:
        split_address(address)
    except ConfigError as exc:
        raise ValueError(f"should be an address; {exc.advice}") from exc
    return address


Address = Annotated[str, AfterValidator(_checked_address)]


class TlsConfig(Section):
    """Certificate files of this party; `insecure: true` instead of them on loopback only."""

    ca: FilePath | None = None
    cert: FilePath | None = None
    key: FilePath | None = None
    insecure: bool = False

    @model_validator(mode="after")
    def _all_or_insecure(self) -> Self:
        require(self._broken())
        return self

    def _broken(self) -> Iterator[Problem]:
        for name in ("ca", "cert", "key"):
            present = getattr(self, name) is not None
            if self.insecure and present:
                yield Problem((name,), "contradicts `insecure: true`; leave one of them out")
            elif not self.insecure and not present:
                yield Problem((name,), "is missing; `vfl certs` makes certificates")


class Prediction(Section):
    """How new rows may be scored with our part of a model; without this section they may not.

    `min_rows` is of common rows in one job: with fewer, nobody learns which ids are common.
    """

    rows_per_day: int = Field(default=10_000, ge=1)
    min_rows: int = Field(default=50, ge=1)
    online: bool = False


class Policy(Section):
    """What this party agrees to; anything else is refused with the reason."""

    algorithms: tuple[Literal["he_linear", "he_logistic", "vfb2", "splitnn", "jpl", "fpd", "local"], ...] = (
        "he_linear",
    )
    min_rows: int = Field(default=50, ge=1)
    min_intersection: int = Field(default=50, ge=1)
    min_key_bits: KeyBits = MIN_KEY_BITS
    noise: tuple[Noise, ...] = ("proven",)
    peers: tuple[Name, ...] = ()
    prediction: Prediction | None = None

    @property
    def least_common(self) -> int:
        """With fewer common ids nobody learns which they are, and no model is trained on them."""
        return max(self.min_rows, self.min_intersection)


class Compute(Section):
    """Where the arithmetic runs: `auto` is one process a core, 0 the service itself; or a Dask scheduler."""

    workers: Literal["auto"] | Annotated[int, Field(ge=0, le=1024)] = "auto"
    dask: str | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        require(self._broken())
        return self

    def _broken(self) -> Iterator[Problem]:
        if self.dask is None:
            return
        if "workers" in self.model_fields_set:
            yield Problem(("workers",), "contradicts `dask`: the cluster has its own workers; leave one out")
        wrong = problem_of(self.dask)
        if wrong is not None:
            yield Problem(("dask",), wrong)


class Deadlines(Section):
    """How long this party waits, in seconds."""

    call_s: float = Field(default=20.0, gt=0)
    step_s: float = Field(default=3600.0, gt=0)
    peer_s: float = Field(default=30.0, gt=0)


class PartyConfig(Section):
    """One party's whole configuration; every path is absolute."""

    party: Name
    role: Role
    listen: Address
    advertise: Address | None = None
    tls: TlsConfig | None = None
    insecure: bool = False
    peers: dict[Name, Address | None]
    state: FilePath
    datasets: dict[Name, DatasetConfig] = Field(default_factory=dict)
    policy: Policy = Policy()
    compute: Compute = Compute()
    deadlines: Deadlines = Deadlines()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        require(self._broken())
        if "peers" not in self.policy.model_fields_set:
            # Frozen means frozen for readers; here the model is still being built.
            object.__setattr__(self, "policy", self.policy.model_copy(update={"peers": tuple(self.peers)}))
        return self

    def _broken(self) -> Iterator[Problem]:
        if self.party in self.peers:
            yield Problem(("peers", self.party), "is this party itself")
        for name in self.policy.peers:
            if name not in self.peers:
                yield Problem(("policy", "peers"), f'"{name}" is not among peers')
        if self.role == "coordinator" and self.datasets:
            yield Problem(("datasets",), "a coordinator holds no data")
        if self.insecure and self.tls is not None and not self.tls.insecure:
            yield Problem(("insecure",), "contradicts the certificates under tls; leave one of them out")
        if not self.is_insecure and self.tls is None:
            yield Problem(("tls",), "is missing; `vfl certs` makes certificates")
        if self.is_insecure:
            yield from self._not_loopback()

    def _not_loopback(self) -> Iterator[Problem]:
        if not is_loopback(self.listen):
            yield Problem(("listen",), "without TLS a party may listen on 127.0.0.1 or ::1 only")
        for name, address in self.peers.items():
            if address is not None and not is_loopback(address):
                yield Problem(("peers", name), "without TLS peers must be on 127.0.0.1 or ::1")

    @property
    def is_insecure(self) -> bool:
        """Whether this party speaks without TLS, which loopback only allows."""
        return self.insecure or (self.tls is not None and self.tls.insecure)

    @property
    def security(self) -> Security:
        """How this party protects its connections."""
        if self.tls is None or self.tls.ca is None or self.tls.cert is None or self.tls.key is None:
            return Security(tls=None)
        return Security(tls=TlsFiles(ca=self.tls.ca, cert=self.tls.cert, key=self.tls.key))

    @property
    def dial_address(self) -> str:
        """The address under which this party's own operator reaches it."""
        if self.advertise is not None:
            return self.advertise
        host, port = split_address(self.listen)
        return join_address({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)  # noqa: S104


def load_party(path: Path) -> PartyConfig:
    """Read a party file.

    Raises:
        ConfigError: Names every problem with its path and line.
    """
    return party_of(read_document(path))


def party_of(document: Document) -> PartyConfig:
    """Return a document that has been read as a party's configuration."""
    return validated(PartyConfig, document)


def warn_of_missing_protection(config: PartyConfig) -> None:
    """Log what is switched off for trials; whoever starts a service or a job says so, once."""
    if os.environ.get(UNSAFE_TEST_KEYS) == "1":
        log.warning(
            "%s=1: keys below %d bits are accepted. FOR TESTS ONLY: they protect nothing",
            UNSAFE_TEST_KEYS,
            MIN_KEY_BITS,
        )
    if config.is_insecure:
        log.warning(
            "%s: insecure: true. No TLS, no authentication: whoever reaches %s is believed",
            config.party,
            config.listen,
        )
