"""What each party learnt in a VFB² run, in plain words (PROTOCOLS 2, "Leaks").

Nothing is softened here: plain VFB² is for parties that may know the labels in the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from common.crypto.aggregation_trees import describe_hiding
from common.runtime.config.vfb2 import Vfb2Job
from common.runtime.vfb2.guard import DECRYPTING, ENCRYPTING, MULTIPLYING, most_rows
from common.runtime.vfb2.sums import tree_pairs
from party_b.reporting.diagram import Flow


@dataclass(frozen=True, slots=True)
class Vfb2Size:
    """The numbers that the sentences speak of.

    Attributes:
        columns: Columns by party, the intercept included.
        ids: Rows by party, before alignment.
        train: Training rows.
        test: Test rows.
        epochs: Epochs that were run.
        updates: Of each active party.
        shared: Anonymous points that two parties' sets share, by pair; with one guest none.
        reused: Whether an earlier job's alignment served again.
        computing: Seconds by party, by what was computed.
    """

    columns: Mapping[str, int]
    ids: Mapping[str, int]
    train: int
    test: int
    epochs: int
    updates: Mapping[str, int]
    shared: Mapping[tuple[str, str], int] = field(default_factory=dict)
    reused: bool = False
    computing: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def vfb2_leaks(job: Vfb2Job, size: Vfb2Size) -> list[str]:
    """Return what each party learnt, each sentence beginning with who learnt it where one party did."""
    return [
        *(text for party in job.members for text in _labels(job, size, party)),
        *_trials(job),
        *(text for party in job.dominators for text in _scores(job, size, party)),
        *_aggregation(job),
        *_guarded_cost(job, size),
        *_keeper(job, size),
        *_ids(job, size),
        f"Every party knows the whole job file, the objective of all {size.epochs:,} epochs, and every "
        f"party's number of columns ({_counts(size.columns)}).",
    ]


def vfb2_flows(job: Vfb2Job, size: Vfb2Size) -> list[Flow]:
    """Return what went over the wire, for the diagram of the report."""
    batch, flows = f"{most_rows(job, size.train):,} rows an update", []
    for root in job.dominators:
        count = f"{size.updates.get(root, 0):,} updates"
        for party in job.members:
            if party == root:
                continue
            flows.append(Flow(party, root, "scores of a batch under uniform masks", batch, "masked"))
            how = "clear" if job.train.theta == "plain" else "encrypted"
            flows.append(Flow(root, party, "derivatives of the loss, with their rows", count, how))
            if how == "encrypted":
                flows.append(Flow(party, root, "its gradient under a uniform mask", count, "masked"))
    for party in job.guests:
        flows.append(
            Flow(party, job.active, "scores of all rows under masks", f"{size.epochs + 2:,} times", "masked")
        )
        if job.train.update == "svrg":
            how = "clear" if job.train.theta == "plain" else "encrypted"
            flows.append(
                Flow(job.active, party, "derivatives of all training rows", f"{size.epochs:,} times", how)
            )
    return flows


def _guarded_labels(job: Vfb2Job, size: Vfb2Size, party: str, told: int) -> Iterator[str]:
    columns = size.columns.get(party, 0)
    yield (
        f"{party} received the derivative θ of the loss only encrypted under {job.active}'s own key, "
        f"{job.train.theta_key_bits} bits. It learnt its own gradient of each of {told:,} updates: {columns} "
        f"numbers about at least {min(job.train.batch_size, size.train):,} rows, in batches that stayed the "
        "same. That is too few to solve for the θ of a row; what a gradient says about its rows together it "
        "does say."
    )
    if job.train.update == "svrg":
        yield (
            f"{party} learnt its own gradient over all {size.train:,} training rows at the end of each epoch "
            "but the last; the first time, at zero weights, it is about its columns and the labels alone."
        )


def _guarded_cost(job: Vfb2Job, size: Vfb2Size) -> Iterator[str]:
    """Say what hiding θ cost, by the parties' own clocks."""
    if job.train.theta == "plain":
        return
    vectors = sum(size.updates.values())
    rows = vectors * most_rows(job, size.train)
    if job.train.update == "svrg":
        vectors, rows = vectors + size.epochs, rows + size.epochs * size.train
    decrypted = vectors * sum(size.columns[name] for name in job.guests)
    own = size.computing.get(job.active, {})
    others = ", ".join(
        f"{name} for {size.computing.get(name, {}).get(MULTIPLYING, 0.0):.2f} s" for name in job.guests
    )
    yield (
        f"What hiding θ cost: {job.active} encrypted about {rows:,} derivatives "
        f"({own.get(ENCRYPTING, 0.0):.2f} s) and decrypted {decrypted:,} masked numbers "
        f"({own.get(DECRYPTING, 0.0):.2f} s); under encryption multiplied {others}. "
        "Every update took a round trip more than in the clear."
    )


def _labels(job: Vfb2Job, size: Vfb2Size, party: str) -> Iterator[str]:
    senders = [name for name in job.dominators if name != party]
    if not senders:
        return
    told = sum(size.updates.get(name, 0) for name in senders)
    if job.train.theta == "encrypted":
        yield from _guarded_labels(job, size, party, told)
        return
    if job.is_classifier:
        gives = "its sign is the label and its size the joint score, both exactly"
    elif job.train.loss == "squared":
        gives = "it is the joint score minus the label"
    else:
        gives = "it gives the joint score minus the label, up to one of two values"
    yield (
        f"{party} received the derivative θ of the loss in the clear for every row of {told:,} updates: "
        f"{gives}. So {party} can know the label of every training row that was in an update."
    )
    if job.train.update == "svrg" and party != job.active:
        first = (
            "minus half the label"
            if job.is_classifier
            else "minus the label"
            if job.train.loss == "squared"
            else "a function of the label alone"
        )
        yield (
            f"{party} received θ of all {size.train:,} training rows at the end of each epoch but the last. "
            f"The first of these was taken at zero weights, where it is {first}: it gives every label away."
        )


def _trials(job: Vfb2Job) -> Iterator[str]:
    if job.train.learning_rate == "auto":
        what = "derivatives in the clear" if job.train.theta == "plain" else "gradients of their own"
        yield (
            "To choose the step size, several were tried on the same first batches: the others received "
            f"{what} of these rows in each trial, and {job.active} scores, beyond what is counted here."
        )


def _scores(job: Vfb2Job, size: Vfb2Size, root: str) -> Iterator[str]:
    updates = size.updates.get(root, 0)
    others = [name for name in job.members if name != root]
    if len(others) == 1:
        yield (
            f"{root} learnt the scores X·w of {others[0]} for every row of its {updates:,} updates, as the "
            "sum without its own part: with two parties no aggregation can hide that."
        )
    else:
        yield (
            f"{root} learnt the sum of all parties' scores for every row of its {updates:,} updates, and "
            "none of them by itself."
        )
    yield (
        f"{root} saw these sums of the same rows under many weights. Over time such sums can show the "
        "products of other parties' rows with each other (their Gram matrix)."
    )


def _aggregation(job: Vfb2Job) -> Iterator[str]:
    if len(job.members) == 2:
        return
    if job.train.aggregation == "pairwise":
        yield (
            "The sums hid each party's scores by masks that cancel between every two parties: up to "
            f"{len(job.members) - 2} parties together learn no more than the sum of the others' scores."
        )
        return
    for pair in tree_pairs(job).values():
        yield f"The sums went over two totally different trees: {describe_hiding(pair)}."


def _keeper(job: Vfb2Job, size: Vfb2Size) -> Iterator[str]:
    whose = (
        "the sum of all parties' scores" if len(job.members) > 2 else "the joint scores, and so the other's,"
    )
    yield (
        f"{job.active} learnt {whose} of all {size.train:,} training rows at the end of each of "
        f"{size.epochs:,} epochs and at the start, the sum of the parties' penalties (l2/2)·|w|² there, and "
        f"the joint scores of {size.test:,} test rows with the final model."
    )


def _ids(job: Vfb2Job, size: Vfb2Size) -> Iterator[str]:
    everybody = " and ".join(job.members)
    yield (
        f"{everybody} each learnt which {size.train + size.test:,} of their own ids all of them have, and "
        f"the sizes of the sets of ids ({_counts(size.ids)}). Nobody received an id."
    )
    if size.shared:
        pairs = ", ".join(f"{left} and {right} {count:,}" for (left, right), count in size.shared.items())
        yield f"{job.active} saw how many points two sets share, not which ids these are: {pairs}."
    if size.reused:
        yield f"{everybody} learnt nothing new about ids: the alignment is from an earlier job."


def _counts(by_party: Mapping[str, int]) -> str:
    return ", ".join(f"{party} {count:,}" for party, count in by_party.items())
