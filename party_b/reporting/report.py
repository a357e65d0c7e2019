"""What a run leaves behind for its users: report.json and report.html, from one frozen record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from common.rpc.pb import job_pb2 as pb
from common.runtime.config.job_base import JobBase
from common.runtime.config.job_kinds import round_word
from common.runtime.estimate import Estimate
from common.types import Role
from party_b.networks.figures import calibration_curve, overlap_curves
from party_b.networks.findings import NetFindings
from party_b.networks.verdict import network_verdict
from party_b.reporting.diagram import Flow, draw
from party_b.reporting.evaluation import Lift, Metrics
from party_b.reporting.figures import loss_curve
from party_b.reporting.wording import FILTERS, Learnt, Verdict, verdict

_TEMPLATE = "report.html.j2"
_NETWORKS_TEMPLATE = "report_networks.html.j2"


@dataclass(frozen=True, slots=True)
class RowCounts:
    """How many rows there were, and what became of them."""

    by_party: Mapping[str, int]
    aligned: int
    train: int
    test: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of messages that a party sent and received in the job."""

    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True, slots=True)
class ModelPart:
    """One party's part of the model.

    Attributes:
        features: In the order of `coefficients`.
        coefficients: For the features as trained on: standardised ones if `preprocessing` says so.
        intercept: None where the party has none.
        preprocessing: What `Preprocessing.to_json` wrote, None without any.
    """

    features: Sequence[str]
    coefficients: Sequence[float] = field(repr=False)
    intercept: float | None = field(default=None, repr=False)
    preprocessing: Mapping[str, object] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """Everything a report says, as it was when the job ended; may be seen by B alone.

    Attributes:
        settings: The job file as plain values.
        parties: Role by party, in the order in which the report lists them.
        loss_history: Mean form, one a round, None where the job did not ask for it.
        seconds_by_phase: B's own clock; they need not add up to the total.
        seconds_by_party: How long each party computed, by what; waiting does not count.
        models: By party; only B's own part, except where one operator runs all parties.
        estimate: What the job was expected to cost, for as many rounds as it took.
        losses: By partition and name, where the loss that was minimised stands for another one.
        networks: What a job with networks found out besides.
        reference_losses: Lines beside the loss curve, by label.
        details: What only this kind of job has to say, by further keys of report.json.
        ended_at: When the job ended, as text with its time zone.
    """

    settings: Mapping[str, object]
    job_id: str
    version: str
    parties: Mapping[str, Role]
    rows: RowCounts
    rounds: int
    converged: bool
    stopped_because: str
    loss_history: Sequence[float | None]
    metrics: Mapping[str, Metrics | None]
    lift: Lift | None
    seconds_total: float
    seconds_by_phase: Mapping[str, float]
    seconds_by_party: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    traffic: Mapping[str, Traffic]
    leaks: Sequence[str]
    models: Mapping[str, ModelPart]
    plan: str = ""
    losses: Mapping[str, Metrics] = field(default_factory=dict)
    estimate: Estimate | None = None
    notes: Sequence[str] = ()
    flows: Sequence[Flow] = ()
    reference_losses: Mapping[str, float] = field(default_factory=dict)
    networks: NetFindings | None = None
    details: Mapping[str, object] = field(default_factory=dict)
    ended_at: str = ""

    @property
    def name(self) -> str:
        """The job's name in its file."""
        return str(self.settings["job"])

    @property
    def algorithm(self) -> str:
        """The job's algorithm."""
        return str(self.settings["algorithm"])


def roles_of(job: JobBase) -> dict[str, Role]:
    """Return every party's role, in the order in which the report lists them."""
    order: tuple[Role, ...] = ("passive", "active", "coordinator")
    return {name: role for role in order for name in job.members if job.role_of(name) == role}


def traffic_by_party(
    active: str, own: tuple[int, int], replies: Mapping[str, pb.CloseJobReply]
) -> dict[str, Traffic]:
    """Return the bytes (sent, received) that the active party counted itself, and those that others told."""
    return {active: Traffic(*own)} | {
        name: Traffic(reply.sent_bytes, reply.received_bytes) for name, reply in replies.items()
    }


def computing_by_party(
    active: str, own: Mapping[str, float], replies: Mapping[str, pb.CloseJobReply]
) -> dict[str, dict[str, float]]:
    """Return the seconds by phase that each party computed, by its own clock."""
    return {active: dict(own)} | {name: dict(reply.seconds) for name, reply in replies.items()}


def report_json(record: RunRecord) -> dict[str, object]:
    """Return report.json as plain values; a number that is not finite becomes None (null)."""
    rows = record.rows
    document = {
        "job": record.name,
        "job_id": record.job_id,
        "algorithm": record.algorithm,
        "version": record.version,
        "ended_at": record.ended_at,
        "settings": record.settings,
        "parties": record.parties,
        "rows": {**rows.by_party, "aligned": rows.aligned, "train": rows.train, "test": rows.test},
        "rounds": record.rounds,
        "converged": record.converged,
        "stopped_because": record.stopped_because,
        "loss_history": record.loss_history,
        "reference_losses": record.reference_losses,
        "metrics": record.metrics,
        "losses": record.losses,
        "lift": record.lift.to_json() if record.lift else None,
        "verdict": _verdict(record).text,
        "seconds": {
            "total": record.seconds_total,
            "by_phase": record.seconds_by_phase,
            "by_party": record.seconds_by_party,
        },
        "traffic": {
            party: {"sent_bytes": traffic.sent_bytes, "received_bytes": traffic.received_bytes}
            for party, traffic in record.traffic.items()
        },
        "networks": record.networks.to_json() if record.networks else None,
        "plan": record.plan,
        "estimate": record.estimate.to_json() if record.estimate else None,
        "notes": record.notes,
        "leaks": record.leaks,
        "model": {party: _model(part) for party, part in record.models.items()},
        **record.details,
    }
    return {key: _plain(value) for key, value in document.items()}


def report_html(record: RunRecord) -> str:
    """Return report.html: one page that needs no network, no script and no other file."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(FILTERS)
    text = resources.files("party_b.reporting").joinpath(_TEMPLATE).read_text(encoding="utf-8")
    return environment.from_string(text).render(
        record=record,
        verdict=_verdict(record),
        curves=_curves(record),
        networks=_networks(environment, record),
        diagram=draw(record.parties, record.flows),
        active=_of_role(record, "active"),
        passive=_of_role(record, "passive"),
        coordinators=_of_role(record, "coordinator"),
        learnt=_by_party(record.leaks, record.parties),
        settings=_flat(record.settings),
    )


def _networks(environment: Environment, record: RunRecord) -> Markup:
    """Return what the page says about networks; nothing for other jobs."""
    findings = record.networks
    if findings is None:
        return Markup()
    text = resources.files("party_b.reporting").joinpath(_NETWORKS_TEMPLATE).read_text(encoding="utf-8")
    overlap, bins = findings.by_overlap, findings.calibration
    # Our own drawings and our own template, whose variables are escaped: nothing is left to escape.
    rendered = environment.from_string(text).render(
        findings=findings,
        active=(_of_role(record, "active") or ["B"])[0],
        overlap_picture=Markup(overlap_curves(overlap)) if overlap else None,  # noqa: S704
        calibration_picture=Markup(calibration_curve(bins)) if bins else None,  # noqa: S704
    )
    return Markup(rendered)  # noqa: S704


def _curves(record: RunRecord) -> Mapping[str, Markup] | None:
    if not any(loss is not None for loss in record.loss_history):
        return None
    # Our own drawing, made of numbers and fixed words: nothing in it needs escaping.
    unit, sizes_in = round_word(record.algorithm), {"wide": (9.6, 3.4), "narrow": (4.7, 3.4)}
    return {
        name: Markup(loss_curve(record.loss_history, record.reference_losses, size_in, unit))  # noqa: S704
        for name, size_in in sizes_in.items()
    }


def _of_role(record: RunRecord, role: Role) -> list[str]:
    return [party for party, part in record.parties.items() if part == role]


def _by_party(leaks: Sequence[str], parties: Mapping[str, Role]) -> list[Learnt]:
    """Group the sentences by the party that they begin with; those about several parties come last."""
    groups: dict[str, list[str]] = {party: [] for party in (*parties, "")}
    for text in leaks:
        party = text.split(" ", 1)[0]
        if party in parties and not text.startswith(f"{party} and "):
            rest = text.removeprefix(party).lstrip()
            groups[party].append(rest[:1].upper() + rest[1:])
        else:
            groups[""].append(text)
    return [Learnt(party, tuple(sentences)) for party, sentences in groups.items() if sentences]


def _verdict(record: RunRecord) -> Verdict:
    active = (_of_role(record, "active") or ["B"])[0]
    if record.networks is not None:
        return network_verdict(record.networks, record.lift, active)
    if set(record.parties) == {active}:
        return Verdict("unknown", "Alone", f"This is {active}'s own model: nobody else took part.")
    return verdict(record.lift, active, record.converged)


def _flat(settings: Mapping[str, object], prefix: str = "") -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            lines += _flat(value, f"{prefix}{key}.")
        elif isinstance(value, (list, tuple)):
            lines.append((f"{prefix}{key}", ", ".join(map(str, value))))
        else:
            lines.append((f"{prefix}{key}", _shown(value)))
    return lines


def _shown(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _model(part: ModelPart) -> dict[str, object]:
    return {
        "features": part.features,
        "coefficients": part.coefficients,
        "intercept": part.intercept,
        "preprocessing": part.preprocessing,
    }


def _plain(value: object) -> object:
    """Return a value made of what JSON has."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return None if value is None else str(value)
