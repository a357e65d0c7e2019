"""How errors stand in a log that is not for debugging: texts of foreign ones may hold a value of a row.

What other parties write, such as the name of a data set, stands in our messages, too: a record is one line.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from common.errors import foreign_text

_Raised: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class WithoutTexts(logging.Formatter):
    """Names the classes of an error and of its causes, and which line raised each: no text, no traceback."""

    def formatException(self, ei: _Raised) -> str:  # noqa: N802 - the name is the library's
        """Return a line for an error and for each of its causes."""
        return "\n".join(_line(exc) for exc in _causes(ei[1]))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is the library's
        """Return the message as one line; asyncio has texts of errors from its second line on."""
        if record.name == "asyncio":
            record.message = record.message.partition("\n")[0]
        record.message = foreign_text(record.message)
        return super().formatMessage(record)


def _causes(exc: BaseException | None) -> Iterator[BaseException]:
    while exc is not None:
        yield exc
        exc = exc.__cause__ if exc.__suppress_context__ else exc.__context__


def _line(exc: BaseException) -> str:
    raised = traceback.extract_tb(exc.__traceback__)[-1:]
    return f"  {type(exc).__name__}" + "".join(f", {Path(at.filename).name}:{at.lineno}" for at in raised)
