"""Every kind of job, told apart by its `algorithm`."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import Discriminator, Tag, ValidationError

from common.errors import ConfigError, RemoteProtocolError
from common.runtime.config.alone import AloneJob
from common.runtime.config.errors import problems_of, validated
from common.runtime.config.job import MAX_JOB_BYTES, JobConfig
from common.runtime.config.networks import NetJob
from common.runtime.config.predict import PredictJob
from common.runtime.config.vfb2 import Vfb2Job
from common.runtime.config.yaml_source import Document, KeyPath, read_document

Job: TypeAlias = JobConfig | PredictJob | AloneJob | NetJob | Vfb2Job

_REGRESSION, _PREDICT, _ALONE, _NET, _VFB2 = "regression", "predict", "local", "network", "vfb2"
_NETS = ("splitnn", "jpl", "fpd")


def round_word(algorithm: str) -> Literal["round", "epoch"]:
    """Return what users call a round of an algorithm."""
    return "epoch" if algorithm in ("vfb2", *_NETS) else "round"


def _kind(value: object) -> str:
    algorithm, model = _key(value, "algorithm"), _key(value, "model")
    if algorithm in _NETS or (algorithm == _ALONE and _key(model, "kind") == _NET):
        return _NET
    # Without a known algorithm it is a regression; in files `require_algorithm` refuses unknown ones before.
    return algorithm if algorithm in (_PREDICT, _ALONE, _VFB2) else _REGRESSION


def _key(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


# A job of a LOCAL.yaml: its parties' state is new, so that no model is there to predict with.
AnyTraining: TypeAlias = Annotated[
    Annotated[JobConfig, Tag(_REGRESSION)]
    | Annotated[AloneJob, Tag(_ALONE)]
    | Annotated[NetJob, Tag(_NET)]
    | Annotated[Vfb2Job, Tag(_VFB2)],
    Discriminator(_kind),
]


def kind_of(values: object) -> type[Job]:
    """Return the kind of job that a mapping of settings is meant to be."""
    kinds: dict[str, type[Job]] = {
        _PREDICT: PredictJob,
        _ALONE: AloneJob,
        _NET: NetJob,
        _VFB2: Vfb2Job,
    }
    return kinds.get(_kind(values), JobConfig)


def job_from_json(text: bytes) -> Job:
    """Return a job that another party, or the operator, sent.

    Raises:
        RemoteProtocolError: It is not a job, or not in its canonical spelling.
    """
    if len(text) > MAX_JOB_BYTES:
        raise RemoteProtocolError("the job that was sent is larger than any job file")
    values = _parsed(text)
    kind = kind_of(values)
    try:
        job: Job = kind.model_validate_json(text)
    except ValidationError as exc:
        texts = [f"{found.dotted()}: {found.text}" for found in problems_of(exc, kind, values)]
        raise RemoteProtocolError(
            f"the job that was sent is not valid: {'; '.join(texts)}",
            advice="Both sides may run different versions of Colonnade: compare `vfl --version`.",
        ) from exc
    if job.canonical_json() != text:
        raise RemoteProtocolError("the job that was sent is not in its canonical spelling")
    return job


def load_any_job(path: Path) -> Job:
    """Read a job file of any kind.

    Raises:
        ConfigError: Names every problem with its path and line.
    """
    return any_job_of(read_document(path))


def any_job_of(document: Document) -> Job:
    """Return a document that has been read as a job of whatever kind it says."""
    require_algorithm(document, ())
    return validated(kind_of(document.data), document)


def require_algorithm(document: Document, path: KeyPath) -> None:
    """Refuse an unknown algorithm by itself: the keys of a job of no known kind cannot be judged.

    Args:
        document: A job file, or one with a job in it.
        path: Where in it the job is.

    Raises:
        ConfigError: There is no such algorithm.
    """
    job: object = document.data
    for key in path:
        job = _key(job, str(key))
    named = _key(job, "algorithm")
    if named is None or named in (known := _algorithms()):
        return
    close = difflib.get_close_matches(str(named).lower(), known, n=1)
    raise ConfigError(
        f'{".".join(map(str, (*path, "algorithm")))}: there is no algorithm "{named}"'
        + (f', did you mean "{close[0]}"?' if close else ""),
        where=f"{document.path}:{document.line_of((*path, 'algorithm'))}",
        advice=f"The algorithms are {', '.join(name for name in known if name != _PREDICT)}.",
    )


def _algorithms() -> tuple[str, ...]:
    kinds = (JobConfig, Vfb2Job, NetJob, AloneJob, PredictJob)
    named = (name for kind in kinds for name in get_args(kind.model_fields["algorithm"].annotation))
    return tuple(dict.fromkeys(named))


def _parsed(text: bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {}
