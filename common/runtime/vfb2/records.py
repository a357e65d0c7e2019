"""What a journal holds: records of updates and ends of epochs, and the state of a checkpoint. No pickle."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from common.glm.asynchronous import EpochEnd, ProgressState, UnseenUpdate, Update
from common.glm.block import BlockState
from common.glm.collaboration import Arriving, CollaborationState
from common.glm.step_size import StepSchedule
from common.rpc.pb import vfb2_pb2 as pb
from common.runtime.state import StateError
from common.runtime.vfb2.wire import Limits, end_from, end_message, unseen_from, update_from, update_message
from common.types import Floats

_UPDATE, _END, _START_OVER, _SUMS = b"U", b"E", b"S", b"G"

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class StartOverRecord:
    """The step size with which training began again from its start."""

    step: float


@dataclass(frozen=True, slots=True)
class SumsRecord:
    """An update of which we have Σ θ_i x_i of our columns, (d,), and not θ."""

    update: UnseenUpdate
    sums: Floats = field(repr=False)


Record = Update | EpochEnd | StartOverRecord | SumsRecord


def update_record(update: Update) -> bytes:
    """Return an update as it is written down."""
    name = update.dominator.encode()
    return _UPDATE + bytes([len(name)]) + name + update_message(update).SerializeToString()


def sums_record(record: SumsRecord) -> bytes:
    """Return an update without θ as it is written down, with what it was applied from."""
    return _SUMS + update_record(replace(record.update, thetas=record.sums))[1:]


def end_record(end: EpochEnd) -> bytes:
    """Return the end of an epoch as it is written down."""
    return _END + end_message(end).SerializeToString()


def start_over_record(step: float) -> bytes:
    """Return a step size on trial as it is written down."""
    return _START_OVER + pb.StartOver(step=step).SerializeToString()


def record_from(content: bytes, limits: Limits) -> Record:
    """Return a record of our own disk.

    Raises:
        StateError: It is none.
    """
    kind, rest = content[:1], content[1:]
    try:
        if kind == _UPDATE:
            end = 1 + rest[0]
            return update_from(rest[1:end].decode(), pb.ThetaUpdate.FromString(rest[end:]), limits)
        if kind == _SUMS:
            end = 1 + rest[0]
            message = pb.ThetaUpdate.FromString(rest[end:])
            sums = np.frombuffer(message.thetas, dtype="<f8").astype(np.float64)
            return SumsRecord(unseen_from(rest[1:end].decode(), message, limits), sums)
        if kind == _END:
            return end_from(pb.EpochEnd.FromString(rest), limits)
        if kind == _START_OVER:
            return StartOverRecord(pb.StartOver.FromString(rest).step)
    except (DecodeError, IndexError, ValueError) as exc:
        raise StateError("a record of the training is damaged") from exc
    raise StateError("a record of the training is of no known kind")


@dataclass(frozen=True, slots=True)
class Kept:
    """A checkpoint's content.

    Attributes:
        state: Of the collaboration.
        extra: What an active party adds: plain JSON values.
        updates: Updates that an active party has sent and not every disk shows.
    """

    state: CollaborationState = field(repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict)
    updates: tuple[Update, ...] = ()


def kept_to_bytes(kept: Kept) -> bytes:
    """Return a checkpoint as a file of arrays."""
    state = kept.state
    meta = {
        "version": 1,
        "phase": state.phase,
        "epoch": state.epoch,
        "schedule": [state.schedule.first, state.schedule.decay],
        "arrived": None if state.arriving is None else state.arriving.count,
        "counts": dict(state.progress.counts),
        "ahead": {name: sorted(numbers) for name, numbers in state.progress.ahead.items()},
        "rows": state.progress.rows,
        "digest": f"{state.progress.digest:x}",
        "extra": dict(kept.extra),
    }
    arrays: dict[str, NDArray[Any]] = {
        "meta": _bytes_array(json.dumps(meta).encode()),
        "weights": state.block.weights,
        "updates": _bytes_array(_joined(kept.updates)),
        **{f"table_{name}": table for name, table in state.block.tables.items()},
    }
    if state.frozen is not None:
        arrays["frozen"] = state.frozen
    if state.arriving is not None:
        arrays["arriving"] = state.arriving.thetas
    target = io.BytesIO()
    np.savez(target, **arrays)  # type: ignore[arg-type]
    return target.getvalue()


def kept_from_bytes(content: bytes, limits: Limits) -> Kept:
    """Return a checkpoint.

    Raises:
        StateError: It is damaged, or of another version.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        meta = json.loads(arrays["meta"].tobytes())
        if meta["version"] != 1:
            raise StateError("a checkpoint is of another version")
        updates = _parted(arrays["updates"].tobytes(), limits)
        return Kept(_state(meta, arrays), meta["extra"], updates)
    except (ValueError, KeyError, TypeError, OSError, DecodeError, zipfile.BadZipFile) as exc:
        raise StateError("a checkpoint of the training is damaged") from exc


def _state(meta: Mapping[str, Any], arrays: Arrays) -> CollaborationState:
    tables = {
        name.removeprefix("table_"): array for name, array in arrays.items() if name.startswith("table_")
    }
    arriving = None if meta["arrived"] is None else Arriving(arrays["arriving"], int(meta["arrived"]))
    ahead = {name: frozenset(numbers) for name, numbers in meta["ahead"].items()}
    progress = ProgressState(meta["counts"], ahead, int(meta["rows"]), int(meta["digest"], 16))
    return CollaborationState(
        meta["phase"],
        int(meta["epoch"]),
        StepSchedule(*meta["schedule"]),
        BlockState(arrays["weights"], tables),
        arrays.get("frozen"),
        arriving,
        progress,
    )


def _joined(updates: tuple[Update, ...]) -> bytes:
    records = [update_record(update) for update in updates]
    return b"".join(len(record).to_bytes(4, "little") + record for record in records)


def _parted(content: bytes, limits: Limits) -> tuple[Update, ...]:
    found, at = [], 0
    while at < len(content):
        length = int.from_bytes(content[at : at + 4], "little")
        record = record_from(content[at + 4 : at + 4 + length], limits)
        if not isinstance(record, Update):
            raise StateError("a checkpoint holds something else where updates belong")
        found.append(record)
        at += 4 + length
    return tuple(found)


def _bytes_array(content: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(content, dtype=np.uint8)
