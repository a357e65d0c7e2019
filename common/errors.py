"""Every error that Colonnade raises on purpose.

    ColonnadeError
    ├── ConfigError              a file or an option is wrong; nothing was started          exit 2
    ├── DataError                a data file is unreadable, or a cell in it is wrong        exit 1
    ├── NumericError             a value left the range the plan proved, or is not finite   exit 1
    ├── JobError                 a job ended without a model                                exit 1
    │   ├── JobCancelled         … because somebody asked for that
    │   └── UnknownJob           this party does not (or no longer) know the job
    ├── PeerError                another party is the cause                                 exit 3
    │   ├── PeerUnreachable      no connection, or it was lost and did not come back
    │   ├── PeerRefused          the peer said no: policy, identity, version
    │   └── PeerFailed           the peer met an error of its own while doing its part
    ├── Refused                  this party says no to a caller: policy, identity, version  exit 1
    └── ProtocolError
        ├── LocalProtocolError   our own side took a wrong turn: a bug
        └── RemoteProtocolError  the other side did: an attack or a version skew

An error's text says what happened, where, and what to do. It never holds a value of a row, a label, a
mask, or a key.
"""

from __future__ import annotations

import textwrap

LONGEST_TEXT = 1500
"""Characters that travel of one text: four of them in an ErrorDetail stay below gRPC's 8 KiB of metadata."""


def foreign_text(text: str) -> str:
    """Return what another party wrote, fit for a terminal, a log and a disk: one line, printable, not long.

    It could move a terminal's cursor otherwise, forge a line of a log, or fill a memory.
    """
    return "".join(sign if sign.isprintable() else " " for sign in text[:LONGEST_TEXT])


class ColonnadeError(Exception):
    """Anything Colonnade reports to its user in one block, without a traceback.

    Attributes:
        what: One sentence: what happened.
        where: File and line, or peer and address; empty when the sentence says it all.
        advice: What the reader can do about it; empty when there is nothing to add.
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", advice: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.advice = advice

    def block(self, width: int | None = None) -> str:
        """Return the error as the block of lines that goes to stderr.

        Args:
            width: Characters of a line; longer ones are folded between words. None: a line for each part.
        """
        parts = (("error: ", self.what), ("  where: ", self.where), ("  do:    ", self.advice))
        lines = [line for name, text in parts if text for line in (name + text).split("\n")]
        return "\n".join(lines if width is None else (_folded(line, width) for line in lines))


def _folded(line: str, width: int) -> str:
    """Return a line in several of the terminal's width; a path is never broken in two."""
    return textwrap.fill(
        line,
        width,
        subsequent_indent=" " * 9,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )


class ConfigError(ColonnadeError):
    """A configuration file or a command-line option is wrong; nothing was started."""

    exit_code = 2


class DataError(ColonnadeError):
    """A data file cannot be read or a cell in it is wrong; names file, row and column."""


class NumericError(ColonnadeError):
    """A value left the range that the plan proved safe, or is not finite; names the feature."""


class JobError(ColonnadeError):
    """A job ended without a model."""


class JobCancelled(JobError):
    """The job ended because somebody cancelled it."""


class UnknownJob(JobError):
    """This party does not know the job, or has already closed it."""


class PeerError(ColonnadeError):
    """Another party is the cause; the message names it."""

    exit_code = 3


class PeerUnreachable(PeerError):
    """There is no connection to the peer, or it was lost and did not come back in time."""


class PeerRefused(PeerError):
    """The peer said no: its policy, our identity, or our version."""


class PeerFailed(PeerError):
    """The peer met an error of its own while doing its part of the job."""

    exit_code = 1


class Refused(ColonnadeError):
    """This party says no to a caller: policy, identity, or version."""


class ProtocolError(ColonnadeError):
    """A message came at the wrong time, from the wrong party, or in the wrong shape."""


class LocalProtocolError(ProtocolError):
    """Our own side took a wrong turn: a bug in Colonnade."""


class RemoteProtocolError(ProtocolError):
    """The other side took a wrong turn: an attack or a version skew. The text may repeat its words."""

    def __init__(self, what: str, *, where: str = "", advice: str = "") -> None:
        super().__init__(foreign_text(what), where=foreign_text(where), advice=foreign_text(advice))
