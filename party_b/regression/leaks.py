"""What each party learnt in a run of encrypted regression, in plain words (PROTOCOLS 1.2, "Leaks").

Nothing is softened here: an administrator at A or C must be able to decide on these sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from common.crypto.paillier import noise_bits
from common.crypto.plan import gradient_packing
from common.runtime.config.job import JobConfig
from common.runtime.linear_design import loss_of
from party_b.regression.leaks_conjugate import conjugate_flows, conjugate_passive
from party_b.regression.leaks_gram import gram_coordinator, gram_flows, gram_set_up, whoever_holds_the_key
from party_b.reporting.diagram import Flow
from party_b.unmatched import ids_described


@dataclass(frozen=True, slots=True)
class RunSize:
    """The numbers that the sentences speak of.

    Attributes:
        columns: Columns by party, the intercept included.
        ids: Rows by party, before alignment.
        train: Training rows.
        test: Test rows.
        rounds: Rounds that were done.
        shared: Anonymous points that two parties' sets share, by pair; with one passive party none.
        alignment: Whether this job aligned the ids or used what an earlier one had kept.
        described: Parties that have said what their ids without a partner look like.
    """

    columns: Mapping[str, int]
    ids: Mapping[str, int]
    train: int
    test: int
    rounds: int
    shared: Mapping[tuple[str, str], int] = field(default_factory=dict)
    alignment: Literal["new", "reused"] = "new"
    described: tuple[str, ...] = ()

    @property
    def aligned(self) -> int:
        """Rows that all parties have."""
        return self.train + self.test


def leaks_of(job: JobConfig, size: RunSize) -> list[str]:
    """Return what each party learnt, one sentence or two an entry, each beginning with who learnt it."""
    gram = job.uses_gram
    return [
        *(text for party in job.passive for text in _passive(job, size, party)),
        *_active(job, size),
        *(gram_set_up(job, size.columns, size.train) if gram else ()),
        *_coordinator(job, size),
        *_ids(job, size),
        f"Every party knows the whole job file, the number of rounds ({size.rounds:,}), the sizes and "
        "times "
        f"of its own messages, and every party's number of columns ({_columns(size)}).",
        whoever_holds_the_key(job) if gram else _whoever_holds_the_key(job),
        *_noise(job),
    ]


def _whoever_holds_the_key(job: JobConfig) -> str:
    return (
        f"Whoever holds {job.coordinator}'s private key and also reads the link between {job.active} and "
        f"{_names(job.passive)} can decrypt every partial score and every residual, and so every label: "
        f"{job.coordinator} must not work together with anybody else in the job."
    )


def _noise(job: JobConfig) -> Iterator[str]:
    if job.crypto.noise == "short":
        bits = noise_bits(job.crypto.key_bits, "short")
        yield (
            f"The noise of every ciphertext has {bits:,} random bits (crypto.noise: short), not the "
            f"{noise_bits(job.crypto.key_bits, 'proven'):,} of the proof: what hides rows and residuals from "
            "whoever has no key is the further assumption that powers with short exponents look like any "
            "others."
        )


def flows_of(job: JobConfig, size: RunSize) -> list[Flow]:
    """Return what went over the wire, for the diagram of the report."""
    extra = [*(gram_flows(job, size.columns, size.train) if job.uses_gram else ())]
    extra += conjugate_flows(job) if job.train.solver == "cg" else []
    return [
        *(Flow(*one) for one in extra),
        *(flow for party in job.passive for flow in _flows_with_passive(job, size, party)),
        *_flows_with_coordinator(job, size, job.active),
        *(flow for party in job.passive for flow in _flows_with_coordinator(job, size, party)),
    ]


def _flows_with_passive(job: JobConfig, size: RunSize, party: str) -> Iterator[Flow]:
    batch, total = _batch_rows(job, size), size.train + size.test
    if not job.uses_gram:
        yield Flow(party, job.active, "partial scores of the batch", f"{batch} a round", "encrypted")
        yield Flow(job.active, party, "residuals of the batch", f"{batch} a round", "encrypted")
    losses = _losses(job, size)
    if losses:
        yield Flow(party, job.active, "its part of the training loss", f"{losses:,} in all", "encrypted")
    yield Flow(job.active, party, "numbers of training rows and of columns", "once", "clear")
    if size.alignment == "new":
        yield Flow(party, job.active, "ids as blinded points", f"{size.ids[party]:,} once", "masked")
        yield Flow(job.active, party, "ids as blinded points", f"{size.ids[job.active]:,} once", "masked")
    yield Flow(job.active, party, "which of its rows are common", f"{size.aligned:,} once", "clear")
    told = "number of rows, rule for ids"
    if job.needs_curvature:
        told += ", largest eigenvalue"
    yield Flow(party, job.active, told, "once", "clear")
    yield Flow(party, job.active, "partial scores, to measure the model", f"{total:,} once", "clear")


def _flows_with_coordinator(job: JobConfig, size: RunSize, party: str) -> Iterator[Flow]:
    columns = f"{size.columns[party]:,} a round"
    if job.uses_gram:
        columns += ", packed"
    yield Flow(party, job.coordinator, "gradient under a uniform mask", columns, "encrypted")
    yield Flow(job.coordinator, party, "the same gradient, decrypted", columns, "masked")
    losses = _losses(job, size)
    if losses and party == job.active:
        yield Flow(party, job.coordinator, "training loss", f"{losses:,} in all", "encrypted")
        yield Flow(job.coordinator, party, "training loss", f"{losses:,} in all", "clear")


def _passive(job: JobConfig, size: RunSize, party: str) -> Iterator[str]:
    columns = size.columns[party]
    if job.train.solver == "cg":
        yield from conjugate_passive(job, party, columns, size.rounds)
        yield _combinations(job, size, party, "residual or label", f"{party}'s gradient and products")
    else:
        first = "label" if _full_batch(job, size) else "label of the first batch"
        product = "−X'y" if loss_of(job).label_factor == 1 else f"−{loss_of(job).label_factor:g}·X'y"
        yield (
            f"{party} saw its own gradient, {columns:,} numbers, in each of {size.rounds:,} rounds. The "
            f"first one is {product}: the sum of every {first}, weighted with each of its own columns. "
            f"{_combinations(job, size, party, 'residual or label')}"
        )
    yield f"{party} learnt that {size.train:,} of its {size.train + size.test:,} rows were trained on."
    if job.needs_curvature:
        yield (
            f"{job.active} learnt the largest eigenvalue of {party}'s X'X/n, one number, because the job "
            "asks for learning_rate: auto."
        )


def _active(job: JobConfig, size: RunSize) -> Iterator[str]:
    columns = size.columns[job.active]
    for party in job.passive:
        yield (
            f"{job.active} received {party}'s partial scores X·w in the clear for {size.train:,} training "
            f"rows and {size.test:,} test rows when the model was measured: one number for each row, "
            "never a column by itself."
        )
    others = "the partial scores" if len(job.passive) == 1 else "the sum of the partial scores"
    gradient = "its own gradient" if job.train.solver == "gd" else "its own part of X'Xp"
    yield (
        f"{job.active} saw {gradient}, {columns:,} numbers, in each of {size.rounds:,} rounds: "
        f"{others} of {_names(job.passive)}, summed with each of its own columns as weights. "
        f"{_combinations(job, size, job.active, 'partial score')}"
    )
    losses = _losses(job, size)
    if losses:
        yield f"{job.active} learnt the training loss of {losses:,} rounds."
    if job.train.solver == "cg":
        yield (
            f"{job.active} knows the training objective of every round, from the scalars of conjugate "
            "gradients; nobody decrypted it."
        )


def _coordinator(job: JobConfig, size: RunSize) -> Iterator[str]:
    if job.uses_gram:
        yield gram_coordinator(job, size.columns, size.train, size.rounds)
    else:
        packing = gradient_packing(job.crypto.key_bits, job.crypto.precision_bits)
        parties = (job.active, *job.passive)
        packed = size.rounds * sum(packing.plaintexts(size.columns.get(party, 0)) for party in parties)
        yield (
            f"{job.coordinator} decrypted {packed:,} packed gradients, each under a fresh mask that is "
            f"uniform modulo N: to {job.coordinator} these are random numbers. It saw no row, label, id or "
            "weight."
        )
    losses = _losses(job, size)
    if losses:
        yield (
            f"{job.coordinator} decrypted the training loss of {losses:,} rounds, a number about the whole "
            f"batch, because the job asks for it (loss_every: {job.train.loss_every}; 0 would avoid this)."
        )
    else:
        yield f"{job.coordinator} decrypted no loss, because the job does not ask for one."


def _combinations(job: JobConfig, size: RunSize, party: str, target: str, they: str = "All of them") -> str:
    columns = size.columns[party]
    if _full_batch(job, size):
        return (
            f"{they} are sums over the same {size.train:,} rows with the same {columns:,} columns as "
            "weights. Over the rounds they can show the products of these columns with the other side's "
            f"columns. They determine no single row's {target}, except for a row that a mix of these "
            "columns singles out, such as the only 1 in a column of zeros."
        )
    batches = size.train // (job.train.batch_size or size.train)
    return (
        f"Every epoch has the same {batches:,} batches, so all of them are {batches:,} × {columns:,} = "
        f"{batches * columns:,} sums over {size.train:,} rows in all, at different weights of the model. "
        f"That is fewer than there are rows: they determine no single row's {target}, except for a row "
        "that a mix of its columns singles out, such as the only 1 in a column of zeros."
    )


def _ids(job: JobConfig, size: RunSize) -> Iterator[str]:
    everybody = (job.active, *job.passive)
    sizes = ", ".join(f"{party} {size.ids[party]:,}" for party in everybody)
    yield (
        f"{_names(everybody)} each learnt which {size.aligned:,} of their own ids all of them have, and "
        f"the sizes of the sets of ids ({sizes}). Nobody received an id, or anything in which a guessed "
        "id could be looked up: ids travelled as curve points under secret scalars of every party."
    )
    if size.shared:
        pairs = ", ".join(f"{left} and {right} {count:,}" for (left, right), count in size.shared.items())
        yield (
            f"{job.active} saw how many points two sets share, without knowing which ids these are: {pairs}."
        )
    for party in size.described:
        yield ids_described(job.active, party)
    if size.alignment == "reused":
        yield (
            f"{_names(everybody)} learnt nothing new about ids in this job: all of this is from an earlier "
            "job on the same ids, whose alignment every party had kept."
        )


def _losses(job: JobConfig, size: RunSize) -> int:
    every = job.train.loss_every if job.train.solver == "gd" else 0
    return -(-size.rounds // every) if every else 0


def _full_batch(job: JobConfig, size: RunSize) -> bool:
    # A batch of more than half of the rows leaves room for no second one (common/data/split.py).
    return job.train.batch_size is None or 2 * job.train.batch_size > size.train


def _batch_rows(job: JobConfig, size: RunSize) -> str:
    return f"{size.train:,}" if _full_batch(job, size) else f"about {job.train.batch_size:,}"


def _columns(size: RunSize) -> str:
    return ", ".join(f"{party} {count:,}" for party, count in size.columns.items())


def _names(parties: tuple[str, ...]) -> str:
    return " and ".join([", ".join(parties[:-1]), parties[-1]] if len(parties) > 1 else parties)
