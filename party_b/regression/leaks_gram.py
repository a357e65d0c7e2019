"""What Gram rounds tell besides: shares of cross products, and ciphertexts of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from common.crypto.gram_plan import MASKING_BITS, GramPlan
from common.runtime.config.job import JobConfig
from common.runtime.gram_messages import held_pairs
from common.runtime.linear_solver import prove_gram_plan

# Sender, receiver, what, amount, protection: the fields of a flow of the report.
Row = tuple[str, str, str, str, str]


def gram_set_up(job: JobConfig, columns: Mapping[str, int], rows: int) -> Iterator[str]:
    """Yield what the two parties of every pair learnt in the set-up."""
    plan = _plan(job, columns, rows)
    for holder, masker in _pairs(job):
        width = _width(job, columns, holder)
        what = f"columns and labels ({width:,} in all)" if holder == job.active else f"{width:,} columns"
        yield (
            f"{masker} received {holder}'s {what} of {rows:,} training rows, encrypted under "
            f"{job.coordinator}'s key, which {masker} cannot decrypt."
        )
        yield (
            f"{holder} holds the {columns[masker]:,} × {width:,} cross products of {masker}'s columns "
            f"with its own, summed over all training rows, each under a random mask of {plan.mask_bits} "
            f"bits that {masker} alone knows: all of them together are random numbers, up to a "
            f"statistical distance of 2^-{MASKING_BITS}. {masker} holds the masks. Neither knows the "
            "products."
        )
        if holder != job.active:
            yield (
                f"{job.active} carried {holder}'s encrypted rows to {masker}, and the masked products "
                "back. It cannot decrypt them."
            )


def gram_coordinator(job: JobConfig, columns: Mapping[str, int], rows: int, rounds: int) -> str:
    """Return what the key holder decrypted."""
    plan = _plan(job, columns, rows)
    products = sum(
        plan.products.plaintexts(_width(job, columns, holder)) * columns[masker]
        for holder, masker in _pairs(job)
    )
    results = sum(plan.results.plaintexts(count) for count in columns.values())
    return (
        f"{job.coordinator} decrypted {products:,} ciphertexts of cross products in the set-up and "
        f"{results:,} of results in each of {rounds:,} rounds, each under a fresh mask that is uniform "
        f"modulo N: to {job.coordinator} these are random numbers. It saw no row, label, id or weight."
    )


def whoever_holds_the_key(job: JobConfig) -> str:
    """Return what would break everything."""
    others = ", ".join(job.passive)
    return (
        f"Whoever holds {job.coordinator}'s private key and also reads a link between {job.active} and "
        f"{others} can decrypt every training row of {job.active}, its labels included, and every "
        f"weight: {job.coordinator} must not work together with anybody else in the job."
    )


def gram_flows(job: JobConfig, columns: Mapping[str, int], rows: int) -> list[Row]:
    """Return what the set-up and the rounds send besides what row-wise rounds send, too."""
    found: list[Row] = []
    for holder, masker in _pairs(job):
        what = "columns and labels" if holder == job.active else "columns"
        amount = f"{_width(job, columns, holder):,} of {rows:,} rows once"
        found += _carried(job, holder, masker, (f"{holder}'s {what}", amount))
        entries = f"{columns[masker] * _width(job, columns, holder):,} once"
        found += _carried(job, masker, holder, ("cross products under random masks", entries))
        found.append((holder, job.coordinator, "cross products under two masks", entries, "encrypted"))
        found.append((job.coordinator, holder, "cross products under two masks", entries, "masked"))
        for sender, receiver in ((holder, masker), (masker, holder)):
            weights = f"{_width(job, columns, sender):,} a round"
            found += _carried(job, sender, receiver, (f"{sender}'s weights or direction", weights))
    return list(dict.fromkeys(found))


def _carried(job: JobConfig, sender: str, receiver: str, flow: tuple[str, str]) -> list[Row]:
    """Return a flow hop by hop: what passive parties send each other goes through the active one."""
    if job.active in (sender, receiver):
        return [(sender, receiver, *flow, "encrypted")]
    return [(sender, job.active, *flow, "encrypted"), (job.active, receiver, *flow, "encrypted")]


def _pairs(job: JobConfig) -> list[tuple[str, str]]:
    return [(holder, masker) for holder in (job.active, *job.passive) for masker in held_pairs(job, holder)]


def _width(job: JobConfig, columns: Mapping[str, int], party: str) -> int:
    return columns[party] + (party == job.active)


def _plan(job: JobConfig, columns: Mapping[str, int], rows: int) -> GramPlan:
    return prove_gram_plan(job, rows, columns)
