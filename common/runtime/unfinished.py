"""Jobs of others as a guest's disk knows them: opened and not ended, or ended with the reply it was given."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from common.errors import ColonnadeError, Refused, RemoteProtocolError, UnknownJob, foreign_text
from common.rpc.pb import job_pb2 as pb
from common.runtime.checkpoint import MAX_ATTEMPTS, TRAINED, Checkpoint
from common.runtime.config.job_kinds import Job, job_from_json
from common.runtime.state import MODEL_FILE, STATUS_FILE, JobStore

log = logging.getLogger("vfl.runtime")

_OPENED = "opened"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended: the outcome, the reason, and the last round that counts."""

    outcome: pb.Outcome.ValueType
    reason: str
    rounds: int = 0

    @classmethod
    def asked(cls, request: pb.CloseJobRequest) -> Ending:
        """Return the ending that a request to close a job asks for.

        Raises:
            RemoteProtocolError: It is none that there is.
        """
        if request.outcome not in (pb.FINISHED, pb.FAILED, pb.CANCELLED):
            raise RemoteProtocolError(f"a job was closed with outcome {request.outcome}, which is none")
        return cls(request.outcome, foreign_text(request.reason), request.turn.round)

    @property
    def word(self) -> str:
        """The outcome in one small word."""
        return pb.Outcome.Name(self.outcome).lower()


@dataclass(frozen=True, slots=True)
class Spent:
    """What a job has cost a party so far.

    Attributes:
        seconds: Of computing, by phase.
    """

    sent_bytes: int = 0
    received_bytes: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)

    def plus(self, other: Spent) -> Spent:
        """Return the sum of both."""
        seconds = dict(self.seconds)
        for phase, value in other.seconds.items():
            seconds[phase] = seconds.get(phase, 0.0) + value
        return Spent(self.sent_bytes + other.sent_bytes, self.received_bytes + other.received_bytes, seconds)

    def to_json(self) -> dict[str, object]:
        """Return it as it is kept."""
        return {
            "sent_bytes": self.sent_bytes,
            "received_bytes": self.received_bytes,
            "seconds": dict(self.seconds),
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, object] | None) -> Spent:
        """Return what was kept; nothing was spent where nothing was kept."""
        if kept is None:
            return cls()
        seconds = kept["seconds"]
        numbers = seconds.items() if isinstance(seconds, Mapping) else ()
        return cls(
            int(str(kept["sent_bytes"])),
            int(str(kept["received_bytes"])),
            {str(phase): float(value) for phase, value in numbers},
        )


@dataclass(frozen=True, slots=True)
class OpenedJob:
    """A job that was opened here and has not ended."""

    job_id: str
    config: Job
    attempt: int


class GuestDisk:
    """What a guest's state directory says about the jobs of others."""

    def __init__(self, store: JobStore) -> None:
        self._store = store

    def note_opening(self, opened: OpenedJob) -> None:
        """Write durably that a job was opened, in which attempt."""
        values = {"job": json.loads(opened.config.canonical_json()), "attempt": opened.attempt}
        Checkpoint.of(self._store, opened.job_id).keep(_OPENED, values)

    def opened(self, job_id: str) -> OpenedJob | None:
        """Return a job that was opened and has not ended, None where there is none."""
        kept = Checkpoint.of(self._store, job_id).kept(_OPENED)
        if kept is None or self._store.has(job_id, STATUS_FILE):
            return None
        return OpenedJob(job_id, _job_of(kept["job"]), int(kept["attempt"]))

    def unfinished(self) -> Iterator[OpenedJob]:
        """Yield every job that was opened and can go on; tidy up after all others."""
        for job_id in self._store.list_jobs():
            try:
                found = self.opened(job_id)
            except (ColonnadeError, KeyError, TypeError, ValueError) as exc:
                log.warning("what is left of job %s cannot be read: %s", job_id, type(exc).__name__)
                continue
            if found is not None:
                yield found
            else:
                self.discard(job_id)

    def require_unused(self, turn: pb.Turn, job: Job) -> None:
        """Refuse to open a job that has ended here, or that goes on in a later attempt.

        Raises:
            Refused: Says which.
            RemoteProtocolError: Another job was opened under this id.
        """
        if self._store.has(turn.job_id, STATUS_FILE):
            raise Refused(self._how_it_ended(turn.job_id))
        opened = self.opened(turn.job_id)
        if not job.resumes and (turn.attempt or opened):
            raise Refused("a job of this kind is not opened again; submit it under a new id")
        if turn.attempt > MAX_ATTEMPTS:
            raise Refused(f"a job is opened again {MAX_ATTEMPTS} times at most; submit it under a new id")
        if opened is None:
            return
        if opened.config.digest() != turn.job_digest:
            raise RemoteProtocolError("another job was opened under this id before")
        if turn.attempt <= opened.attempt:
            raise Refused(
                f"the job was opened here in attempt {opened.attempt}; attempt {turn.attempt} does not follow"
            )

    def end(self, opened: OpenedJob, ending: Ending) -> pb.CloseJobReply | None:
        """End a job that is not open in memory; None where it cannot end like that.

        A job can finish once this party's model lies ready: everybody had trained by then, and only closing
        is left.
        """
        if self._store.has(opened.job_id, STATUS_FILE):
            return None
        spent, digest, checkpoint = Spent(), "", Checkpoint.of(self._store, opened.job_id)
        if ending.outcome == pb.FINISHED:
            ready = checkpoint.kept(TRAINED)
            if ready is None or ready["rounds"] != ending.rounds:
                return None
            spent = Spent.from_json(ready["spent"])
            digest = _digest_of(self._store.write_json(opened.job_id, MODEL_FILE, ready["model"]))
        record = ending_record(opened.config, ending, spent) | {"model_digest": digest}
        self._store.write_json(opened.job_id, STATUS_FILE, record)
        checkpoint.discard()
        log.info("job %s %s: %s", opened.job_id, ending.word, ending.reason)
        return closing_reply(opened.job_id, opened.config, ending, spent, digest)

    def reply_of(self, turn: pb.Turn) -> tuple[Job, Ending, pb.CloseJobReply] | None:
        """Return the answer that closing an ended job was given, None where the job has not ended here."""
        if not self._store.has(turn.job_id, STATUS_FILE):
            return None
        try:
            kept = self._store.read_json(turn.job_id, STATUS_FILE)
            config = _job_of(kept["job"])
            ending = Ending(pb.Outcome.Value(kept["outcome"].upper()), kept["reason"], int(kept["rounds"]))
            spent = Spent.from_json(kept)
            reply = closing_reply(turn.job_id, config, ending, spent, kept["model_digest"])
            reply.unseen.extend(kept.get("unseen", ()))
        except (KeyError, TypeError, ValueError, AttributeError, ColonnadeError) as exc:
            log.warning("the record of job %s cannot be read: %s", turn.job_id, type(exc).__name__)
            return None
        return config, ending, reply

    def discard(self, job_id: str) -> None:
        """Remove what a job that has ended needs no longer."""
        Checkpoint.of(self._store, job_id).discard()

    def _how_it_ended(self, job_id: str) -> str:
        try:
            kept = self._store.read_json(job_id, STATUS_FILE)
            told = f" ({kept['outcome']}{': ' if kept['reason'] else ''}{kept['reason']})"
        except (ColonnadeError, KeyError, TypeError):
            told = ""
        return f"a job of this id has ended here{told}; submit it again under a new one"


def ending_record(config: Job, ending: Ending, spent: Spent) -> dict[str, object]:
    """Return what status.json says of a job that has ended at a guest."""
    return {
        "job": json.loads(config.canonical_json()),
        "outcome": ending.word,
        "reason": ending.reason,
        "rounds": ending.rounds,
        **spent.to_json(),
        "model_digest": "",
    }


def closing_reply(
    job_id: str, config: Job, ending: Ending, spent: Spent, model_digest: str
) -> pb.CloseJobReply:
    """Return what a guest says about itself when a job is closed."""
    return pb.CloseJobReply(
        turn=pb.Turn(job_id=job_id, job_digest=config.digest(), round=ending.rounds),
        sent_bytes=spent.sent_bytes,
        received_bytes=spent.received_bytes,
        seconds=spent.seconds,
        model_digest=model_digest,
    )


def _job_of(kept: object) -> Job:
    """Return a job that was kept on our own disk."""
    try:
        return job_from_json(json.dumps(kept, sort_keys=True, separators=(",", ":")).encode())
    except RemoteProtocolError as exc:
        raise UnknownJob(f"a job of another version is kept: {exc.what}") from exc


def _digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
