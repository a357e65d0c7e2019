"""Alignments that a party keeps, so that the next job on the same ids of the same parties need not align."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from common.runtime.state import write_atomically
from common.types import Ints

log = logging.getLogger("vfl.runtime")

ALIGNMENT_ID_BYTES = 16

_FOLDER = "alignments"
_ROW = np.dtype("<i8")


@dataclass(frozen=True, slots=True)
class AlignmentKey:
    """What an alignment is about; a change of any of it makes a new one necessary.

    Attributes:
        active: The party that conducted it.
        passive: The others, in the job's order.
        dataset: Name of the data set.
        id_rule: How cells became ids.
        ids_digest: Of the own ids in file order, hexadecimal; never leaves the party.
    """

    active: str
    passive: tuple[str, ...]
    dataset: str
    id_rule: str
    ids_digest: str = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """Which of a party's own rows are common to all parties.

    Attributes:
        alignment_id: 16 random bytes, the same at every party.
        rows: Own row numbers in the common order; may be seen by this party alone.
    """

    alignment_id: bytes
    rows: Ints = field(repr=False)


class AlignmentCache:
    """One file for each key under the party's state; a newer alignment replaces the older one."""

    def __init__(self, state: Path) -> None:
        self._folder = state / _FOLDER

    def keep(self, key: AlignmentKey, alignment: Alignment) -> None:
        """Write an alignment to the disk; where that cannot be done, the next job aligns again."""
        rows = alignment.rows.astype(_ROW).tobytes()
        header = {
            **asdict(key),
            "alignment_id": alignment.alignment_id.hex(),
            "rows": len(alignment.rows),
            "rows_sha256": hashlib.sha256(rows).hexdigest(),
        }
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(self._path(key), json.dumps(header).encode() + b"\n" + rows)
        except OSError as exc:
            log.warning("an alignment cannot be kept in %s: %s", self._folder, exc.strerror)

    def find(self, key: AlignmentKey) -> Alignment | None:
        """Return the kept alignment; a damaged file counts as none."""
        path = self._path(key)
        try:
            line, _, rows = path.read_bytes().partition(b"\n")
            header = json.loads(line)
            if hashlib.sha256(rows).hexdigest() != header["rows_sha256"]:
                raise ValueError("the rows are damaged")
            return Alignment(
                bytes.fromhex(header["alignment_id"]), np.frombuffer(rows, _ROW).astype(np.int64)
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as exc:
            log.warning(
                "a kept alignment cannot be used and is made again: %s (%s)", path, type(exc).__name__
            )
            return None

    def _path(self, key: AlignmentKey) -> Path:
        name = hashlib.sha256(json.dumps(asdict(key), sort_keys=True).encode()).hexdigest()
        return self._folder / f"{name[:32]}.alignment"
