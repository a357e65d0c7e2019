"""The one place that every message passes on its way out and in.

Channels and servers turn messages into bytes and back only here. So here they are counted, a message
type that does not declare what it discloses is stopped, and whoever must see the wire (the traffic of a
job, a ledger, an attack in a test) is shown the very bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message

from common.errors import LocalProtocolError, RemoteProtocolError
from common.rpc.disclosure import disclosure_of, undeclared_messages

__all__ = ["MessageCount", "Passage", "Tap", "Traffic", "Wiretap", "disclosure_of"]

M = TypeVar("M", bound=Message)

_MOST_JOBS = 1024
_LONGEST_JOB_ID = 128
"""Jobs whose traffic is kept, and how long their ids may be: peers that invent some must not fill memory."""


@dataclass(frozen=True, slots=True)
class Passage:
    """One message on its way through.

    Attributes:
        direction: Seen from this party.
        peer: The other party; empty where it is not known.
        job_id: Empty outside jobs.
        message: What passes; taps only look at it.
        wire: The serialised message as it leaves or as it came.
    """

    direction: Literal["sent", "received"]
    peer: str
    job_id: str
    message: Message = field(repr=False)
    wire: bytes = field(repr=False)

    @property
    def message_type(self) -> str:
        """The message's full protobuf name."""
        return str(self.message.DESCRIPTOR.full_name)


Tap = Callable[[Passage], None]


@dataclass(frozen=True, slots=True)
class MessageCount:
    """Messages of one type and their bytes, gRPC and TLS framing not included."""

    sent: int = 0
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0

    def plus(self, passage: Passage) -> MessageCount:
        """Return the count with one more message in it."""
        size = len(passage.wire)
        if passage.direction == "sent":
            return MessageCount(self.sent + 1, self.sent_bytes + size, self.received, self.received_bytes)
        return MessageCount(self.sent, self.sent_bytes, self.received + 1, self.received_bytes + size)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one job has cost in messages so far.

    Attributes:
        by_message: Counts by short message name, for example `EncryptedScores`.
    """

    sent_bytes: int
    received_bytes: int
    by_message: Mapping[str, MessageCount]


class Wiretap:
    """Serialises what leaves, parses what comes, counts both by job, and shows both to its taps."""

    def __init__(self, taps: Sequence[Tap] = ()) -> None:
        """Create a wiretap.

        Args:
            taps: Called with every message, before it is sent and after it was parsed; what they raise
                stops the message.
        """
        self._taps = tuple(taps)
        self._jobs: OrderedDict[str, dict[str, MessageCount]] = OrderedDict()
        self._declared: set[type[Message]] = set()

    def encode(self, message: Message, peer: str) -> bytes:
        """Return the bytes of a message that may leave.

        Raises:
            LocalProtocolError: The message, or one inside it, does not declare what it discloses.
        """
        self._require_declared(type(message))
        wire = message.SerializeToString()
        self._pass(Passage("sent", peer, _job_id(message), message, wire))
        return wire

    def decode(self, parse: Callable[[bytes], M], wire: bytes, peer: str) -> M:
        """Return the message in the bytes that a peer sent.

        Raises:
            RemoteProtocolError: The bytes are no such message.
        """
        try:
            message = parse(wire)
        except (DecodeError, UnicodeDecodeError) as exc:
            raise RemoteProtocolError(
                f"{peer or 'a peer'} sent {len(wire)} bytes that are not the message that belongs there",
                advice="both sides must speak the same version of the protocol; `vfl check` compares them",
            ) from exc
        self._pass(Passage("received", peer, _job_id(message), message, wire))
        return message

    def totals(self, job_id: str) -> Traffic:
        """Return the traffic of a job so far; nothing for an unknown job."""
        by_message = dict(self._jobs.get(job_id, {}))
        return Traffic(
            sent_bytes=sum(count.sent_bytes for count in by_message.values()),
            received_bytes=sum(count.received_bytes for count in by_message.values()),
            by_message=by_message,
        )

    def forget(self, job_id: str) -> None:
        """Drop the counts of a job that is over."""
        self._jobs.pop(job_id, None)

    def _require_declared(self, message_type: type[Message]) -> None:
        if message_type in self._declared:
            return
        descriptor = cast("Descriptor", message_type.DESCRIPTOR)
        disclosure_of(descriptor)
        undeclared = undeclared_messages(descriptor)
        if undeclared:
            raise LocalProtocolError(
                f"{descriptor.full_name} holds messages that do not declare what they disclose: "
                + ", ".join(undeclared)
            )
        self._declared.add(message_type)

    def _pass(self, passage: Passage) -> None:
        for tap in self._taps:
            tap(passage)
        counts = self._jobs.setdefault(passage.job_id, {})
        self._jobs.move_to_end(passage.job_id)
        name = passage.message_type.rpartition(".")[2]
        counts[name] = counts.get(name, MessageCount()).plus(passage)
        if len(self._jobs) > _MOST_JOBS:
            del self._jobs[self._least_wanted()]

    def _least_wanted(self) -> str:
        """Return the oldest job that nothing was said about by us, as about those that a peer invents."""
        unanswered = (one for one, counts in self._jobs.items() if not any(c.sent for c in counts.values()))
        return next(unanswered, next(iter(self._jobs)))


def _job_id(message: Message) -> str:
    turn = getattr(message, "turn", None)
    owner = message if turn is None else turn
    job_id = getattr(owner, "job_id", "")
    return job_id if isinstance(job_id, str) and len(job_id) <= _LONGEST_JOB_ID else ""
