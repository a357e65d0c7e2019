"""What a party can check by itself: its data, its certificates, its state, its port."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from common.data.reading import Label
from common.errors import ColonnadeError
from common.rpc.addresses import split_address
from common.rpc.certs import show
from common.rpc.diagnose import Finding, Route, diagnose
from common.runtime.config.errors import MIN_KEY_BITS
from common.runtime.config.job_kinds import Job
from common.runtime.config.party import PartyConfig
from common.runtime.config.predict import PredictJob
from common.runtime.config.vfb2 import Vfb2Job
from common.runtime.linear_design import open_dataset
from common.runtime.state import JobStore

# Algorithms whose jobs have a key of the coordinator's, which `policy.min_key_bits` is about.
_WITH_KEYS = frozenset(("he_linear", "he_logistic"))

# A month is what a company's own CA may take.
_EXPIRES_SOON_DAYS = 30


def check_own(own: PartyConfig, job: Job | None) -> Iterator[Finding]:
    """Yield what can be said without any network; a job says which column of an active party is a label."""
    for name in own.datasets:
        yield _dataset(own, name, job)
    if own.is_insecure:
        yield Finding("certificates", True, "none: insecure, on loopback only, FOR TRIALS ONLY")
    elif missing_files(own):
        yield _no_files(own)
    else:
        yield _certificate(own)
        yield _key_file(own)
    yield _state(own)
    if own.role == "coordinator" or _WITH_KEYS.intersection(own.policy.algorithms):
        yield _key_size(own)


def _key_size(own: PartyConfig) -> Finding:
    bits = own.policy.min_key_bits
    enough = bits >= MIN_KEY_BITS
    return Finding(
        "key size", enough, f"jobs with keys below {bits} bits are refused", f"raise it to {MIN_KEY_BITS}"
    )


async def check_port(own: PartyConfig) -> list[Finding]:
    """Tell whether the service can listen, or already does."""
    host, port = split_address(own.listen)
    reason = _cannot_bind(host, port)
    if reason is None:
        return [Finding("listen", True, f"{own.listen} is free; the service is not running")]
    findings = await diagnose(Route(own.party, own.dial_address, own.party, own.role, own.security))
    broken = [finding for finding in findings if not finding.ok]
    if not broken:
        return [Finding("listen", True, f"our own service answers at {own.dial_address}")]
    advice = "stop whatever listens there, or choose another port under `listen`"
    return [
        Finding(
            "listen",
            False,
            f"{own.listen}: {reason}, and not by our own service ({broken[0].detail})",
            advice,
        )
    ]


def _dataset(own: PartyConfig, name: str, job: Job | None) -> Finding:
    dataset, label = own.datasets[name], _label(own, name, job)
    try:
        table = open_dataset(name, dataset, label)
    except ColonnadeError as exc:
        advice = exc.advice
        if own.role == "active" and label is None:
            advice += "; if this is about a label, check with the job file, too (-c JOB.yaml)"
        where = f" ({exc.where})" if exc.where else ""
        return Finding(f"data {name}", False, f"{exc.what}{where}", advice)
    detail = f"{table.rows} rows, {table.width} columns besides {dataset.id.column}"
    return Finding(f"data {name}", True, "; ".join([detail, *table.intake.sentences()]))


def _label(own: PartyConfig, name: str, job: Job | None) -> Label | None:
    """Return what is the label of a data set in a job; it may be text, where features may not."""
    if job is None or isinstance(job, PredictJob) or job.role_of(own.party) != "active":
        return None
    if job.data.dataset != name:
        return None
    column = job.data.label_of(own.party) if isinstance(job, Vfb2Job) else job.data.label
    return Label(column, own.datasets[name].missing_labels, job.data.positive)


def missing_files(own: PartyConfig) -> list[Path]:
    """Return the certificate files that the party file names and that are not there."""
    files = own.security.tls
    return [] if files is None else [path for path in (files.ca, files.cert, files.key) if not path.exists()]


def _no_files(own: PartyConfig) -> Finding:
    """Return one finding for all that is missing, and for all that needs it: nobody answers without them."""
    missing = missing_files(own)
    names = ", ".join(path.name for path in missing)
    folder, parties = missing[0].parent, " ".join(f"--party {one}" for one in (own.party, *own.peers))
    made = f"vfl certs init {folder} {parties}"
    if (folder / "ca.pem").exists():
        made = f"vfl certs issue {folder} --party {own.party} --replace"
    return Finding(
        "certificates",
        False,
        f"not there yet: {names} in {folder}; peers are not asked without them",
        f"for a trial: {made}; else put there what your authority has issued",
    )


def _certificate(own: PartyConfig) -> Finding:
    try:
        own.security.verify(own.party, own.listen)
    except ColonnadeError as exc:
        return Finding(
            "certificate", False, f"{exc.what} ({exc.where})" if exc.where else exc.what, exc.advice
        )
    files = own.security.tls
    if files is None:
        return Finding("certificate", False, "no certificates are configured", "`vfl certs` makes them")
    summary = show([files.cert])[0]
    soon = f" (in {summary.days_left} days: renew it)" if summary.days_left < _EXPIRES_SOON_DAYS else ""
    return Finding("certificate", True, f"is for {own.party}, valid until {summary.not_after:%Y-%m-%d}{soon}")


def _key_file(own: PartyConfig) -> Finding:
    path = own.tls.key if own.tls else None
    try:
        mode = stat.S_IMODE(Path(path or "").stat().st_mode)
    except OSError as exc:
        return Finding("private key", False, f"{path}: {exc.strerror}")
    if mode & 0o077:
        return Finding(
            "private key", False, f"{path} may be read by others (mode {mode:04o})", f"chmod 600 {path}"
        )
    return Finding("private key", True, f"only we may read it (mode {mode:04o})")


def _state(own: PartyConfig) -> Finding:
    advice = "give the service's user write access, or name another directory under `state`"
    if not JobStore(own.state).writable():
        return Finding("state", False, f"{own.state} cannot be written", advice)
    return Finding("state", True, f"{own.state} can be written")


def _cannot_bind(host: str, port: int) -> str | None:
    """Return why the address cannot be bound, None when it can."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # Without this a port whose last connection is just closing would look taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as exc:
        return os.strerror(exc.errno) if exc.errno else str(exc)
    return None
