"""What a job will cost, before it starts: seconds, bytes and memory, by party and phase.

One model for everything that asks: `vfl estimate`, the report's comparison with what happened, and
`crypto.rounds: auto`. It counts the operations that roles and ciphers will do, times what each takes on this
machine (calibration.py); bytes follow from the protocol alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from common.crypto.gram_plan import GramRequest, prove_gram
from common.crypto.masked_gradient import BLOCK_ROWS
from common.crypto.plan import gradient_packing
from common.rpc.chunks import CHUNK_BYTES, FLOWING_PIECES
from common.runtime.calibration import Calibration, Machine
from common.runtime.config.job import JobConfig
from common.runtime.estimate_costs import Costs

Rounds = Literal["rowwise", "gram"]
Place = Literal["one machine", "machines of their own"]

# Measured on services that do nothing, fork servers included, and on workers with a table of noise.
_SERVICE_BYTES = {"passive": 260 * 2**20, "active": 300 * 2**20, "coordinator": 155 * 2**20}
_WORKER_BYTES = 70 * 2**20
# A call there and back with mutual TLS on loopback, and what a round keeps a service busy with besides.
_CALL_S = 0.003
_ROUND_S = 0.008
# Starting the job everywhere, and closing it.
_OPENING_S = 0.6
_CLOSING_S = 0.1
# Keys, envelopes and turn of a message.
_MESSAGE_BYTES = 90
# A blinded id at one party (X25519), and the 32 bytes it travels as.
_BLINDING_S = 60e-6
_BLINDED_BYTES = 32


@dataclass(frozen=True, slots=True)
class Shape:
    """What the cost of a job depends on.

    Attributes:
        job: The job.
        ids: Rows of each party's data set, before ids are aligned.
        aligned: Rows that all have.
        train: Rows that are trained on.
        columns: Columns of every party that has columns, the intercept included.
        feature_bits: Length of a party's largest encoded feature; by default of numbers up to 8.
        workers: Processes of a party.
    """

    job: JobConfig
    ids: Mapping[str, int]
    aligned: int
    train: int
    columns: Mapping[str, int]
    feature_bits: Mapping[str, int] = field(default_factory=dict)
    workers: int = 1

    def bits(self, party: str) -> int:
        """Return the length of a party's exponents."""
        return self.feature_bits.get(party, self.job.crypto.precision_bits + 3)

    @property
    def batch(self) -> int:
        """Rows of a round."""
        return min(self.train, self.job.train.batch_size or self.train)


@dataclass(slots=True)
class Work:
    """What one party does in one phase: seconds of one core, calls, and bytes."""

    busy_s: float = 0.0
    calls: int = 0
    sent_bytes: float = 0.0
    received_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cost of a job.

    Attributes:
        rounds: How many rounds it is for; training may end earlier.
        kind: Row-wise or Gram rounds.
        seconds: By phase, on a clock.
        round_s: One round, on a clock.
        busy_s: By party and phase, seconds of one core.
        traffic: By party: bytes sent and received.
        memory_bytes: By party, all of its processes together at their peak.
        cores: That were free when this was estimated.
    """

    rounds: int
    kind: Rounds
    seconds: Mapping[str, float]
    round_s: float
    busy_s: Mapping[str, Mapping[str, float]]
    traffic: Mapping[str, tuple[int, int]]
    round_traffic: Mapping[str, tuple[int, int]]
    memory_bytes: Mapping[str, int]
    cores: float

    @property
    def total_s(self) -> float:
        """All phases."""
        return sum(self.seconds.values())

    def for_rounds(self, rounds: int) -> Estimate:
        """Return the same for another number of rounds, e.g. as many as it then took."""
        more = rounds - self.rounds
        traffic = {
            party: (
                sent + more * self.round_traffic[party][0],
                received + more * self.round_traffic[party][1],
            )
            for party, (sent, received) in self.traffic.items()
        }
        seconds = {**self.seconds, "training": self.seconds["training"] + more * self.round_s}
        return replace(self, rounds=rounds, seconds=seconds, traffic=traffic)

    def to_json(self) -> dict[str, object]:
        """Return report.json's `estimate`."""
        return {
            "rounds": self.rounds,
            "kind": self.kind,
            "cores": round(self.cores, 2),
            "seconds": {"total": self.total_s, "by_phase": dict(self.seconds), "a_round": self.round_s},
            "busy_seconds": {party: dict(phases) for party, phases in self.busy_s.items()},
            "traffic": {
                party: {"sent_bytes": sent, "received_bytes": received}
                for party, (sent, received) in self.traffic.items()
            },
            "memory_bytes": dict(self.memory_bytes),
        }


def estimate(shape: Shape, kind: Rounds, speed: Calibration, machine: Machine, place: Place) -> Estimate:
    """Return what the job costs with rounds of one kind.

    Args:
        shape: Of the job.
        kind: Of rounds.
        speed: Of one core; peers are taken to be as fast.
        machine: This one.
        place: Whether all parties compute on this machine, or each on one like it.
    """
    costs = Costs(speed, shape.job.crypto.key_bits, shape.job.crypto.noise)
    phases = _alignment(shape) | (_gram(shape, costs) if kind == "gram" else _rowwise(shape, costs))
    parties = shape.job.members
    clocks = {phase: _clock(shape, works, machine, place) for phase, works in phases.items()}
    rounds = most_rounds(shape.job, shape.columns)
    seconds = {
        "opening": _OPENING_S + 2e-6 * sum(shape.ids.values()),
        "aligning": clocks["aligning"],
        "preparing": clocks["preparing"],
        "training": clocks["sharing"] + rounds * clocks["round"],
        "evaluating": 4 * _CALL_S + 1e-7 * shape.aligned,
        "closing": _CLOSING_S,
    }
    once = [phases[phase] for phase in ("aligning", "preparing", "sharing")]
    return Estimate(
        rounds=rounds,
        kind=kind,
        seconds=seconds,
        round_s=clocks["round"],
        busy_s={
            party: {
                "once": sum(works[party].busy_s for works in once),
                "training": rounds * phases["round"][party].busy_s,
            }
            for party in parties
        },
        traffic={
            party: _bytes([works[party] for works in once], phases["round"][party], rounds)
            for party in parties
        },
        round_traffic={party: _bytes([], phases["round"][party], 1) for party in parties},
        memory_bytes=_memory(shape, costs),
        cores=machine.share(_processes(shape, place)),
    )


def choose_rounds(shape: Shape, speed: Calibration, machine: Machine, place: Place) -> Rounds:
    """Return the cheaper kind of rounds for `crypto.rounds: auto`; mini-batches are always row-wise."""
    if shape.job.train.batch_size is not None:
        return "rowwise"
    kinds: tuple[Rounds, Rounds] = ("rowwise", "gram")
    return min(kinds, key=lambda kind: estimate(shape, kind, speed, machine, place).seconds["training"])


def most_rounds(job: JobConfig, columns: Mapping[str, int]) -> int:
    """Return how many rounds the job takes at most: conjugate gradients end by themselves (PROTOCOLS 1.5)."""
    if job.train.solver != "cg":
        return job.train.max_rounds
    passive = sum(count for party, count in columns.items() if party != job.active)
    return min(job.train.max_rounds, 2 * min(passive, columns[job.active] + 1) + 1)


def _losses(job: JobConfig) -> int:
    """Return how many losses are decrypted in a round: conjugate gradients do without."""
    return int(job.train.has_loss(1) and job.train.solver == "gd")


def _works(shape: Shape) -> dict[str, Work]:
    return {party: Work() for party in shape.job.members}


def _sends(works: dict[str, Work], sender: str, receiver: str, size: float) -> None:
    """Note bytes on their way, in messages of a chunk at most."""
    size += _MESSAGE_BYTES * (1 + size // CHUNK_BYTES)
    works[sender].sent_bytes += size
    works[receiver].received_bytes += size


def _passes(works: dict[str, Work], job: JobConfig, between: tuple[str, str], size: float) -> None:
    """Note bytes from one party to another: passive parties have no line but the one to the active party."""
    sender, receiver = between
    if job.active in between:
        _sends(works, sender, receiver, size)
    else:
        _sends(works, sender, job.active, size)
        _sends(works, job.active, receiver, size)


def _alignment(shape: Shape) -> dict[str, dict[str, Work]]:
    """Each set is blinded by every party, and passes through the active one."""
    works, job = _works(shape), shape.job
    holders = [party for party in job.members if party != job.coordinator]
    for owner in holders:
        for other in holders:
            works[other].busy_s += shape.ids.get(owner, shape.aligned) * _BLINDING_S
        for passive in job.passive:
            size = shape.ids.get(owner, shape.aligned) * _BLINDED_BYTES
            _sends(works, job.active, passive, size)
            _sends(works, passive, job.active, size)
    for party in holders:
        works[party].calls = 4 * len(job.passive)
    return {"aligning": works}


def _prepared(shape: Shape, costs: Costs) -> dict[str, Work]:
    works, job = _works(shape), shape.job
    works[job.coordinator].busy_s = costs.key_pair_s
    for party in shape.columns:
        works[party].calls = 4
        works[party].busy_s = shape.aligned * shape.columns[party] * 2e-7
    return works


def _tables(shape: Shape, costs: Costs) -> dict[str, Work]:
    """Every worker builds its own table of noise, when it first needs one."""
    works = _works(shape)
    for party in shape.columns:
        works[party].busy_s = shape.workers * costs.speed.table_s
    return works


def _rowwise(shape: Shape, costs: Costs) -> dict[str, dict[str, Work]]:
    """PROTOCOLS 1.1: [[u]] of every passive party, [[d]] back, X'[[d]] at each, and C."""
    works, job, rows = _works(shape), shape.job, shape.batch
    blocks = [min(BLOCK_ROWS, rows - start) for start in range(0, rows, BLOCK_ROWS)]
    active, key_holder = works[job.active], job.coordinator
    loss = _losses(job)
    packing = gradient_packing(job.crypto.key_bits, job.crypto.precision_bits)
    for party in job.passive:
        work, columns = works[party], shape.columns[party]
        work.busy_s += costs.encrypted_s(rows + loss) + costs.received_s(rows)
        work.busy_s += sum(costs.product_s(block, columns, shape.bits(party)) for block in blocks)
        work.busy_s += costs.packed_s(columns, packing) + _ROUND_S
        active.busy_s += costs.received_s(rows)
        _sends(works, party, job.active, costs.bytes(rows + loss))
        _sends(works, job.active, party, costs.bytes(rows))
        work.calls = active.calls = 4
    active.busy_s += costs.sealed_s(rows + loss) + costs.added_s(rows * (len(job.passive) - 1)) + _ROUND_S
    own, label_bits = shape.columns[job.active], job.crypto.precision_bits + 8
    for block in blocks:
        active.busy_s += costs.product_s(block, own - int(job.data.intercept), shape.bits(job.active))
        active.busy_s += costs.product_s(block, loss, label_bits)
        active.busy_s += costs.ones_s(block, int(job.data.intercept), job.crypto.precision_bits)
    active.busy_s += costs.packed_s(own, packing)
    for party, columns in shape.columns.items():
        asked = packing.plaintexts(columns) + (loss if party == job.active else 0)
        _decrypted(works, costs, (party, key_holder), asked)
    works[key_holder].busy_s += _ROUND_S
    works[key_holder].calls = 2
    return {"preparing": _prepared(shape, costs), "sharing": _tables(shape, costs), "round": works}


def _decrypted(works: dict[str, Work], costs: Costs, between: tuple[str, str], ciphertexts: int) -> None:
    party, key_holder = between
    works[key_holder].busy_s += costs.decrypted_s(ciphertexts)
    _sends(works, party, key_holder, costs.bytes(ciphertexts))
    _sends(works, key_holder, party, costs.bytes(ciphertexts) / 2)


def _gram(shape: Shape, costs: Costs) -> dict[str, dict[str, Work]]:
    """PROTOCOLS 1.4: cross products of every pair once; then rounds of as many ciphertexts as columns."""
    job, crypto = shape.job, shape.job.crypto
    plan = prove_gram(
        GramRequest(crypto.key_bits, crypto.precision_bits, shape.train, sum(shape.columns.values()) + 1)
    )
    setup, round_ = _tables(shape, costs), _works(shape)
    order = (job.active, *job.passive)
    # The labels are one more column of the active party; the constant column is one like others.
    columns = {party: shape.columns[party] + int(party == job.active) for party in order}
    for at, holder in enumerate(order):
        for masker in order[at + 1 :]:
            packed = plan.products.plaintexts(columns[holder])
            setup[holder].busy_s += costs.encrypted_s(shape.train * packed)
            for start in range(0, shape.train, BLOCK_ROWS):
                block = min(BLOCK_ROWS, shape.train - start)
                setup[masker].busy_s += packed * costs.product_s(block, columns[masker], shape.bits(masker))
            setup[masker].busy_s += costs.received_s(shape.train * packed)
            products = packed * columns[masker]
            setup[masker].busy_s += costs.sealed_s(products)
            setup[holder].busy_s += costs.sealed_s(products)
            _passes(setup, job, (holder, masker), costs.bytes(shape.train * packed))
            _passes(setup, job, (masker, holder), costs.bytes(products))
            _decrypted(setup, costs, (holder, job.coordinator), products)
            setup[holder].calls += 3
    loss = _losses(job)
    for party in order:
        work, result = round_[party], plan.results.plaintexts(shape.columns[party])
        work.busy_s += costs.encrypted_s(columns[party]) + costs.sealed_s(result + loss) + _ROUND_S
        bits = plan.results.slot_bits * min(plan.results.slots, shape.columns[party])
        for other in order:
            if other == party:
                continue
            work.busy_s += costs.encrypted_s(plan.results.plaintexts(shape.columns[other]))
            work.busy_s += costs.few_s(columns[other], bits) * result
            _passes(round_, job, (other, party), costs.bytes(columns[other] + result))
        _decrypted(round_, costs, (party, job.coordinator), result + (loss if party == job.active else 0))
        work.calls = 3
    round_[job.coordinator].busy_s += _ROUND_S
    return {"preparing": _prepared(shape, costs), "sharing": setup, "round": round_}


def _clock(shape: Shape, works: Mapping[str, Work], machine: Machine, place: Place) -> float:
    """Return the seconds of a phase on a clock.

    On one machine everything shares its cores. On machines of their own the parties overlap but for the first
    piece, and the key holder comes last.
    """
    calls_s = max(work.calls for work in works.values()) * _CALL_S
    if place == "one machine":
        return sum(work.busy_s for work in works.values()) / machine.share(_processes(shape, place)) + calls_s
    share = machine.share(shape.workers)
    holders = sorted(work.busy_s for party, work in works.items() if party != shape.job.coordinator)
    overlapped = holders[-1] + sum(holders[:-1]) / FLOWING_PIECES
    return (overlapped + works[shape.job.coordinator].busy_s) / share + calls_s


def _processes(shape: Shape, place: Place) -> float:
    """Return how many processes want to compute at the same time: two parties' workers, or one party's."""
    return float(shape.workers) if place == "machines of their own" else 2.0 * shape.workers


def _bytes(once: list[Work], round_: Work, rounds: int) -> tuple[int, int]:
    sent = sum(work.sent_bytes for work in once) + rounds * round_.sent_bytes
    received = sum(work.received_bytes for work in once) + rounds * round_.received_bytes
    return int(sent), int(received)


def _memory(shape: Shape, costs: Costs) -> dict[str, int]:
    """Return bytes of all processes of a party: they hold its columns, a block of ciphertexts, and tables."""
    job = shape.job
    memory = {job.coordinator: _SERVICE_BYTES["coordinator"]}
    for party, columns in shape.columns.items():
        # Values as read, prepared, and as the training rows; doubles, and ids.
        table = shape.ids.get(party, shape.aligned) * (columns * 8 * 4 + 200)
        blocks = costs.bytes(min(BLOCK_ROWS, shape.batch)) * (2 + 4 * shape.workers)
        service = _SERVICE_BYTES["active" if party == job.active else "passive"]
        memory[party] = int(service + shape.workers * _WORKER_BYTES + table + blocks)
    return memory
