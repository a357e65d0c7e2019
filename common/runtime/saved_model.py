"""A party's own part of a model as its model.json keeps it: everything that scoring new rows needs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from common.data.matching import ModelColumns
from common.data.preprocess import Preprocessing
from common.data.table import Table
from common.errors import DataError, UnknownJob
from common.runtime.config.alone import AloneJob, TrainingJob
from common.runtime.config.vfb2 import Vfb2Job
from common.runtime.state import MODEL_FILE, JobStore, StateError
from common.types import Floats

Loss = Literal["squared", "logistic"]


@dataclass(frozen=True, slots=True, eq=False)
class OwnScores:
    """A party's own scores of rows; may be seen by it alone.

    Attributes:
        scores: (n,), X·w of its columns plus its intercept.
        notes: What was filled or unseen, with counts.
        unseen: For each column with categories that no training row had, in how many rows.
    """

    scores: Floats = field(repr=False)
    notes: tuple[str, ...] = ()
    unseen: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SavedModel:
    """One party's part of a linear model; may be seen by that party alone.

    Attributes:
        job_id: Of the job that trained it.
        job: That job's name.
        party: Whose part this is.
        algorithm: Of that job.
        loss: `logistic` makes a probability of a score.
        active: The party that may ask for scores.
        passive: The parties that have the other parts, in the job's order.
        also_active: Further active parties that have parts.
        rounds: Rounds of training.
        preprocessing: What was learnt about the party's columns.
        coefficients: (d,), of the columns as prepared.
        intercept: Only at the active party.
        label: Column that is predicted, only at the active party.
        positive: Text of the label that counts as +1, where it is a text.
        notes: What reading and preparing the training rows did.
        parts: SHA-256 of every passive party's model.json, hexadecimal; only at the active party.
    """

    job_id: str
    job: str
    party: str
    algorithm: str
    loss: Loss
    active: str
    passive: tuple[str, ...]
    rounds: int
    preprocessing: Preprocessing
    coefficients: Floats = field(repr=False)
    intercept: float | None = field(default=None, repr=False)
    label: str | None = None
    positive: str | None = None
    notes: tuple[str, ...] = ()
    parts: Mapping[str, str] = field(default_factory=dict)
    also_active: tuple[str, ...] = ()

    @property
    def keeps_sparse(self) -> bool:
        """Whether it takes sparse columns as they are."""
        return self.preprocessing.sparse is not None

    @property
    def columns(self) -> ModelColumns:
        """The columns of this party that the model was trained on."""
        return ModelColumns.of_preprocessing(self.preprocessing)

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values; numbers survive exactly."""
        return {
            "job_id": self.job_id,
            "job": self.job,
            "party": self.party,
            "algorithm": self.algorithm,
            "loss": self.loss,
            "active": self.active,
            "passive": list(self.passive),
            "also_active": list(self.also_active),
            "rounds": self.rounds,
            "label": self.label,
            "positive": self.positive,
            "features": list(self.preprocessing.features),
            "coefficients": self.coefficients.tolist(),
            "intercept": self.intercept,
            "preprocessing": self.preprocessing.to_json(),
            "notes": list(self.notes),
            "parts": dict(self.parts),
        }

    def partial_scores(self, table: Table) -> OwnScores:
        """Return X·w of this party's columns plus its intercept, and what was filled or unseen.

        Raises:
            DataError: A column does not fit; names it.
        """
        fitted = self.preprocessing
        prepared = fitted.apply(table) if fitted.sparse is None else fitted.apply_sparse(table)
        scores = np.asarray(prepared.matrix @ self.coefficients) + (self.intercept or 0.0)
        if not np.isfinite(scores).all():
            raise DataError("a score of the new rows is not finite", where=table.source)
        return OwnScores(scores, prepared.notes, tuple(prepared.unseen.values()))


def saved_loss(job: TrainingJob | Vfb2Job) -> Loss:
    """Return what the scores of a job's model stand for."""
    if isinstance(job, Vfb2Job):
        return "logistic" if job.is_classifier else "squared"
    if isinstance(job, AloneJob):
        return job.model.loss
    return "logistic" if job.algorithm == "he_logistic" else "squared"


def load_model(store: JobStore, job_id: str, party: str) -> tuple[SavedModel, str]:
    """Return a party's part of the model that a job left, and the SHA-256 of its file.

    Raises:
        UnknownJob: The job left no model here.
        StateError: The file is damaged, or of a version that did not keep all that is needed.
    """
    try:
        content = store.read_bytes(job_id, MODEL_FILE)
    except UnknownJob as exc:
        raise UnknownJob(
            f"{party} has no model of job {job_id}",
            advice="Only a job that finished leaves a model, and only where its party has kept its state.",
        ) from exc
    try:
        model = _model(json.loads(content))
    except (KeyError, TypeError, ValueError, AttributeError, DataError) as exc:
        raise StateError(
            f"the model of job {job_id} is damaged, or of another version",
            where=f"{MODEL_FILE} of {party}",
            advice="Train again.",
        ) from exc
    return model, hashlib.sha256(content).hexdigest()


def _model(document: Mapping[str, Any]) -> SavedModel:
    preprocessing = Preprocessing.from_json(document["preprocessing"])
    coefficients = np.array(document["coefficients"], dtype=np.float64)
    intercept = document["intercept"]
    if document["loss"] not in ("squared", "logistic") or coefficients.ndim != 1:
        raise ValueError("this is no linear model")
    if not len(coefficients) == len(preprocessing.features) == len(document["features"]):
        raise ValueError("the coefficients are not those of the columns")
    return SavedModel(
        job_id=str(document["job_id"]),
        job=str(document["job"]),
        party=str(document["party"]),
        algorithm=str(document["algorithm"]),
        loss=document["loss"],
        active=str(document["active"]),
        passive=tuple(map(str, document["passive"])),
        rounds=int(document["rounds"]),
        preprocessing=preprocessing,
        coefficients=coefficients,
        intercept=None if intercept is None else float(intercept),
        label=document["label"],
        positive=document["positive"],
        notes=tuple(map(str, document["notes"])),
        parts=dict(document["parts"]),
        also_active=tuple(map(str, document.get("also_active", ()))),
    )
