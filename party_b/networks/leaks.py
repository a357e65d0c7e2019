"""What each party learnt in a job with networks, in plain words (PROTOCOLS 3, "Leaks").

Nothing is softened here: an administrator at A and the owner of the labels at B must be able to decide on
these sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.runtime.config.networks import NetJob
from party_b.reporting.diagram import Flow

if TYPE_CHECKING:
    from party_b.networks.findings import NetFindings


@dataclass(frozen=True, slots=True)
class NetSize:
    """The numbers that the sentences speak of.

    Attributes:
        counts: Rows by party, before alignment.
        columns: Columns by party.
        common: Common rows.
        trained: Common rows that were trained on.
        validation: Common rows that said when to stop.
        common_test: Common rows that only measure.
        test: Rows on which the job's own model was measured.
        epochs: Of all runs of the split network.
        runs: Of the split network.
        reused: Whether an earlier alignment served again.
    """

    counts: Mapping[str, int]
    columns: Mapping[str, int]
    common: int
    trained: int
    validation: int
    common_test: int
    test: int
    epochs: int
    runs: int
    reused: bool


def net_leaks(job: NetJob, size: NetSize, findings: NetFindings) -> list[str]:
    """Return what each party learnt, one sentence or two an entry, each beginning with who learnt it."""
    if not job.passive:
        return [f"{job.active} trained on its own columns; nothing left it, and nobody learnt anything."]
    return [
        *(text for party in job.passive for text in _passive(job, size, findings, party)),
        *(text for party in job.passive for text in _active(job, size, party)),
        *_ids(job, size),
        "Every party knows the whole job file, the number of epochs, the sizes and times of its own "
        f"messages, and the other parties' numbers of rows; {job.active} also knows their numbers of "
        "columns.",
    ]


def _passive(job: NetJob, size: NetSize, findings: NetFindings, party: str) -> Iterator[str]:
    """Say what A can read of the labels."""
    width = job.model.bottom[-1]
    yield (
        f"{party} received {size.epochs:,} times, for each of {size.trained:,} training rows, {width} numbers"
        ": the gradient of the loss by its own representation. It received no label, and nothing of "
        f"{job.active}'s columns by itself."
    )
    yield f"{party} can look for labels in these gradients, which {_label_sentence(job)}"
    leak = findings.attacks.get(party)
    if leak is not None:
        yield (
            f"{party} could, with what it received in this run, rank the labels with an AUC of "
            f"{_auc(leak['norm'])} by the norms of the gradients, {_auc(leak['direction'])} by their "
            f"directions in a batch, and {_auc(leak['over_epochs'])} by the mean direction over all "
            f"epochs (0.5 is guessing, 1 is every label). {job.active} ran these attacks itself; nobody "
            "else did."
        )


def _label_sentence(job: NetJob) -> str:
    privacy = job.privacy
    if privacy.protect == "none":
        return (
            "were not protected (privacy.protect: none): their direction tells the label of nearly "
            "every training row, and their norm often does. Treat these labels as known to it."
        )
    if privacy.protect == "max_norm":
        return (
            "carried noise along themselves (max_norm): norms tell nothing any more, but directions "
            "still do where classes are uneven, and the mean over epochs may bring labels back."
        )
    if privacy.protect == "marvell":
        return (
            f"carried noise that makes both classes alike (marvell, power {privacy.power:g}) in each "
            "batch; the mean over many epochs hides less than one batch does."
        )
    return (
        "were computed from labels of which each had been flipped once at random (label_dp, ε = "
        f"{privacy.epsilon:g}): whatever is done with them says no more about one label than that."
    )


def _active(job: NetJob, size: NetSize, party: str) -> Iterator[str]:
    """Say what B can read of A's columns."""
    privacy, width = job.privacy, job.model.bottom[-1]
    hidden = ""
    if privacy.clip is not None:
        hidden = f", clipped to a norm of {privacy.clip:g}"
        hidden += f" and with Gaussian noise of {privacy.noise:g} times that" if privacy.noise else ""
    tested = job.algorithm == "splitnn" or job.train.measure_teacher
    rows = size.common if tested else size.trained + size.validation
    yield (
        f"{job.active} received {party}'s representation of {rows:,} common rows{hidden}: {width} "
        f"numbers a row, made of {party}'s {size.columns.get(party, 0)} columns by a network that "
        f"{job.active} does not have. It keeps those of the best epoch: rows that are alike for the "
        f"label stay alike in them, and with some known rows {job.active} could learn to estimate "
        f"columns of {party}'s from them."
    )
    if not job.scorers:
        yield (
            f"{job.active} can estimate {party}'s representation of any row, also of rows that {party} "
            "never shared: the model that it keeps holds an encoder that imitates it."
            if job.algorithm == "jpl"
            else f"{job.active} keeps a model that carries what {party}'s columns said about the label."
        )


def _ids(job: NetJob, size: NetSize) -> Iterator[str]:
    everybody = " and ".join((job.active, *job.passive))
    sizes = ", ".join(f"{party} {count:,}" for party, count in size.counts.items())
    when = " in an earlier job" if size.reused else ""
    yield (
        f"{everybody} each learnt{when} which {size.common:,} of their own ids all of them have, and the "
        f"sizes of the sets of ids ({sizes}). Nobody received an id."
    )


def net_flows(job: NetJob, size: NetSize) -> list[Flow]:
    """Return what went over the wire, for the diagram of the report."""
    width, flows = job.model.bottom[-1], []
    tested = job.algorithm == "splitnn" or job.train.measure_teacher
    handed = size.common if tested else size.trained + size.validation
    for party in job.passive:
        flows += [
            Flow(
                party,
                job.active,
                "representations of the batch",
                f"{width} numbers a row, each epoch",
                "clear",
            ),
            Flow(job.active, party, "gradients of the batch", f"{width} numbers a row, each epoch", "clear"),
            Flow(party, job.active, "representations, best epoch", f"{handed:,} rows, once", "clear"),
        ]
        if not size.reused:
            flows += [
                Flow(party, job.active, "blinded ids", f"{size.counts.get(party, 0):,}", "masked"),
                Flow(job.active, party, "blinded ids", f"{size.counts.get(job.active, 0):,}", "masked"),
            ]
    return flows


def _auc(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
