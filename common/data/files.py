"""Opening files for reading, with what the operating system says about them as a DataError."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from common.errors import DataError

_GZIP = b"\x1f\x8b"


def open_binary(path: Path) -> BinaryIO:
    """Open a file for reading bytes, unpacked when it is gzip data, whatever its name says."""
    stream = path.open("rb")
    packed = stream.read(len(_GZIP)) == _GZIP
    stream.seek(0)
    # With a name of its own the GzipFile would close nothing; the raw stream is closed by the collector.
    return cast(BinaryIO, gzip.GzipFile(fileobj=stream)) if packed else stream


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what the operating system and gzip say about a file into a DataError."""
    try:
        yield
    except FileNotFoundError as failure:
        raise DataError(
            f"there is no file {path}", where=str(path), advice="check the path in the party file"
        ) from failure
    except IsADirectoryError as failure:
        raise DataError(f"{path} is a directory, not a file", where=str(path)) from failure
    except PermissionError as failure:
        raise DataError(
            f"{path} may not be read by this user", where=str(path), advice="check the file's owner and mode"
        ) from failure
    except (EOFError, gzip.BadGzipFile, zlib.error) as failure:
        raise DataError(
            f"{path} is not whole gzip data", where=str(path), advice="copy or compress the file again"
        ) from failure
    except OSError as failure:
        raise DataError(
            f"{path} cannot be read: {failure.strerror or 'broken'}", where=str(path)
        ) from failure
