"""The one place where the bytes of protos/vfl/v1/vfb2.proto become values, and values bytes.

What is checked here is what can be seen of a message alone: lengths, ranges, finiteness, rows that are there.
Whether it is the time for it, the roles know.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from common.crypto.aggregation_trees import TreeName
from common.crypto.secure_sum import WORD_BYTES, Words, words_from_bytes, words_to_bytes
from common.errors import RemoteProtocolError
from common.glm.asynchronous import (
    Asked,
    Cut,
    EpochEnd,
    ReferencePart,
    ScoreRequest,
    UnseenUpdate,
    Update,
    check_batch,
    check_thetas,
)
from common.rpc.pb import vfb2_pb2 as pb
from common.types import Floats, Ints

ROWS_PER_PIECE = 8192
"""Consecutive rows of one sum over many rows: 64 KiB of words, and a few milliseconds of products."""

ROWS_PER_REFERENCE = 32_768
"""Derivatives in one message: 256 KiB."""

_ROW_BYTES = 4
_THETA_BYTES = 8
_ASKED: Mapping[int, Asked] = {
    pb.SCORES_NOW: "scores",
    pb.FROZEN_SCORES: "frozen_scores",
    pb.FROZEN_PENALTY: "frozen_penalty",
    pb.TEST_SCORES: "test_scores",
}
_ASKED_CODES: Mapping[Asked, pb.Asked.ValueType] = {
    "scores": pb.SCORES_NOW,
    "frozen_scores": pb.FROZEN_SCORES,
    "frozen_penalty": pb.FROZEN_PENALTY,
    "test_scores": pb.TEST_SCORES,
}
_TREES: Mapping[int, TreeName] = {1: "T1", 2: "T2"}
_TREE_CODES: Mapping[TreeName, int] = {"T1": 1, "T2": 2}


@dataclass(frozen=True, slots=True)
class Limits:
    """What the messages of one job may speak of.

    Attributes:
        train: Training rows.
        test: Test rows.
        batch_size: Rows of an update.
        dominators: All active parties.
    """

    train: int
    test: int
    batch_size: int
    dominators: tuple[str, ...]

    def longest_sum(self) -> int:
        """Numbers in the longest sum that can be asked for."""
        return max(self.batch_size, ROWS_PER_PIECE)


def request_word(request: ScoreRequest, step: int = 0) -> pb.DominatorWord:
    """Return a request as it travels; `step` numbers the update it becomes, in mode sync."""
    message = pb.ScoreRequest(
        number=request.number, asked=_ASKED_CODES[request.asked], epoch=request.epoch, step=step
    )
    if request.asked == "scores":
        message.rows = _rows_to_bytes(request.rows)
    elif len(request.rows):
        message.begin, message.count = int(request.rows[0]), len(request.rows)
    return pb.DominatorWord(request=message)


def request_from(root: str, message: pb.ScoreRequest, limits: Limits) -> ScoreRequest:
    """Return a received request.

    Raises:
        RemoteProtocolError: It asks for nothing known, or for too many rows, or for rows that are not there.
    """
    asked = _ASKED.get(message.asked)
    if asked is None or not message.number:
        raise RemoteProtocolError(f"{root} asked for a sum of no known kind")
    if asked == "scores":
        rows = _rows_from_bytes(message.rows, limits)
    elif asked == "frozen_penalty":
        rows = np.zeros(0, dtype=np.int64)
    else:
        total = limits.test if asked == "test_scores" else limits.train
        begin, count = message.begin, message.count
        if not 0 < count <= ROWS_PER_PIECE or begin + count > total:
            raise RemoteProtocolError(f"{root} asked for rows {begin} … {begin + count} of {total}")
        rows = np.arange(begin, begin + count, dtype=np.int64)
    return ScoreRequest(root, message.number, asked, message.epoch, rows)


def update_message(update: Update) -> pb.ThetaUpdate:
    """Return an update as it travels and as it is written down."""
    return pb.ThetaUpdate(
        number=update.number,
        epoch=update.epoch,
        request=update.request,
        rows=_rows_to_bytes(update.rows),
        thetas=update.thetas.astype("<f8").tobytes(),
    )


def update_from(dominator: str, message: pb.ThetaUpdate, limits: Limits) -> Update:
    """Return a received update.

    Raises:
        RemoteProtocolError: Rows and derivatives do not come in equal, permitted numbers; a row is not there,
            or comes twice; a derivative is not finite.
    """
    rows = _rows_from_bytes(message.rows, limits)
    thetas = check_thetas(_thetas_from_bytes(message.thetas, len(rows)), len(rows))
    return Update(dominator, message.number, message.epoch, message.request, rows, thetas)


def unseen_from(dominator: str, message: pb.SealedUpdate | pb.ThetaUpdate, limits: Limits) -> UnseenUpdate:
    """Return a received update without its θ.

    Raises:
        RemoteProtocolError: Its rows do not come in a permitted number; one is not there, or comes twice.
    """
    rows = _rows_from_bytes(message.rows, limits)
    nothing = np.zeros(0)
    return UnseenUpdate(dominator, message.number, message.epoch, message.request, rows, nothing)


def sealed_word(update: Update, ciphertexts: bytes) -> pb.DominatorWord:
    """Return an update as it travels with θ encrypted."""
    message = pb.SealedUpdate(
        number=update.number,
        epoch=update.epoch,
        request=update.request,
        rows=_rows_to_bytes(update.rows),
        ciphertexts=ciphertexts,
    )
    return pb.DominatorWord(sealed=message)


def sum_message(number: int, tree: TreeName, words: Words) -> pb.PartialSum:
    """Return a partial sum as it travels."""
    return pb.PartialSum(number=number, tree=_TREE_CODES[tree], words=words_to_bytes(words))


def sum_from(message: pb.PartialSum, limits: Limits) -> tuple[TreeName, Words]:
    """Return the tree and the words of a received partial sum.

    Raises:
        RemoteProtocolError: There is no such tree, or it is longer than any sum of the job.
    """
    tree, length = _TREES.get(message.tree), len(message.words) // WORD_BYTES
    if tree is None or not 0 < length <= limits.longest_sum():
        raise RemoteProtocolError(f"a partial sum of {length} words over tree {message.tree} came")
    return tree, words_from_bytes(message.words, length)


def end_message(end: EpochEnd) -> pb.EpochEnd:
    """Return the end of an epoch as it travels and as it is written down."""
    return pb.EpochEnd(epoch=end.epoch, cut=dict(end.cut))


def end_from(message: pb.EpochEnd | pb.Finish, limits: Limits) -> EpochEnd:
    """Return a received end of an epoch, or of training.

    Raises:
        RemoteProtocolError: It names somebody who does not dominate.
    """
    cut: Cut = dict(message.cut)
    if not cut.keys() <= set(limits.dominators):
        raise RemoteProtocolError("the end of an epoch names a party that does not dominate")
    return EpochEnd(message.epoch, cut)


def reference_word(part: ReferencePart) -> pb.DominatorWord:
    """Return SVRG's derivatives of consecutive rows as they travel."""
    thetas = part.thetas.astype("<f8").tobytes()
    return pb.DominatorWord(reference=pb.ReferencePart(epoch=part.epoch, start=part.start, thetas=thetas))


def reference_from(message: pb.ReferencePart) -> ReferencePart:
    """Return received derivatives of consecutive rows.

    Raises:
        RemoteProtocolError: They are none or more than one message has.
    """
    count = len(message.thetas) // _THETA_BYTES
    if not 0 < count <= ROWS_PER_REFERENCE:
        raise RemoteProtocolError(f"derivatives of {count} rows came in one message")
    return ReferencePart(message.epoch, message.start, _thetas_from_bytes(message.thetas, count))


def step_from(value: float) -> float:
    """Return a received step size.

    Raises:
        RemoteProtocolError: It is not a positive number.
    """
    if not (math.isfinite(value) and value > 0):
        raise RemoteProtocolError("the step size is not a positive number")
    return value


def _rows_to_bytes(rows: Ints) -> bytes:
    return rows.astype("<u4").tobytes()


def _rows_from_bytes(data: bytes, limits: Limits) -> Ints:
    count, rest = divmod(len(data), _ROW_BYTES)
    if rest or not 0 < count <= limits.batch_size:
        raise RemoteProtocolError(
            f"{len(data)} bytes came as the rows of a batch of at most {limits.batch_size}"
        )
    return check_batch(np.frombuffer(data, dtype="<u4").astype(np.int64), limits.train)


def _thetas_from_bytes(data: bytes, count: int) -> Floats:
    if len(data) != _THETA_BYTES * count:
        raise RemoteProtocolError(f"{len(data)} bytes came as the derivatives of {count} rows")
    return np.frombuffer(data, dtype="<f8").astype(np.float64)
