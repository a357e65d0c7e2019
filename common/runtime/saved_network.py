"""A party's own part of a network model: model.json says what it is, network.safetensors has its weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from common.data.matching import ModelColumns
from common.data.preparation import ColumnType, MissingRule
from common.data.table import Table
from common.errors import ConfigError, DataError, UnknownJob
from common.nets.field_kinds import HashedField
from common.nets.fields import FieldPlan
from common.nets.protect import OPEN_RELEASE, Release
from common.runtime.state import MODEL_FILE, JobStore, StateError

NETWORK_FILE = "network.safetensors"
_KIND = "network"

Part = Literal["passive half", "active half", "student"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SavedNetwork:
    """One party's part of a network model; may be seen by that party alone.

    Attributes:
        job_id: Of the job that trained it.
        job: That job's name.
        party: Whose part this is.
        algorithm: Of that job.
        part: What network.safetensors holds; a `student` scores alone.
        active: The party that may ask for scores.
        passive: The parties whose parts are needed for scores; none for a student.
        rounds: Epochs of training that are in it.
        plan: What was learnt about the party's columns.
        missing: What happens to a missing value, by column.
        network_sha256: Of network.safetensors, hexadecimal.
        label: Column that is predicted, only at the active party.
        positive: Text of the label that counts as +1, where it is a text.
        width: Numbers in a passive party's representation of a row.
        release: What is done to representations before they leave, only at a passive party.
        notes: What reading did with the training rows.
        parts: SHA-256 of every passive party's model.json, hexadecimal; only at the active party.
    """

    job_id: str
    job: str
    party: str
    algorithm: str
    part: Part
    active: str
    passive: tuple[str, ...]
    rounds: int
    plan: FieldPlan = field(repr=False)
    missing: Mapping[str, MissingRule]
    network_sha256: str
    label: str | None = None
    positive: str | None = None
    width: int = 0
    release: Release = OPEN_RELEASE
    notes: tuple[str, ...] = ()
    parts: Mapping[str, str] = field(default_factory=dict)

    @property
    def loss(self) -> Literal["logistic"]:
        """What the scores stand for: logits."""
        return "logistic"

    @property
    def keeps_sparse(self) -> bool:
        """Whether it takes sparse columns as they are; a network takes every number."""
        return False

    @property
    def columns(self) -> ModelColumns:
        """The columns of this party that the model was trained on."""
        kinds: dict[str, ColumnType] = {
            one.name: "categorical" if isinstance(one, HashedField) else "numeric" for one in self.plan.fields
        }
        return ModelColumns(kinds, self.missing)

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values."""
        return {
            "kind": _KIND,
            "job_id": self.job_id,
            "job": self.job,
            "party": self.party,
            "algorithm": self.algorithm,
            "part": self.part,
            "active": self.active,
            "passive": list(self.passive),
            "rounds": self.rounds,
            "label": self.label,
            "positive": self.positive,
            "features": list(self.plan.names),
            "fields": self.plan.to_json(),
            "missing": dict(self.missing),
            "network": NETWORK_FILE,
            "network_sha256": self.network_sha256,
            "width": self.width,
            "clip": self.release.clip,
            "noise": self.release.noise,
            "noise_secret": str(self.release.secret),
            "notes": list(self.notes),
            "parts": dict(self.parts),
        }


@dataclass(frozen=True, slots=True, eq=False)
class LoadedNetwork:
    """A saved network with its weights.

    Attributes:
        saved: What model.json says.
        weights: Content of network.safetensors.
        digest: SHA-256 of model.json, hexadecimal.
    """

    saved: SavedNetwork
    weights: bytes = field(repr=False)
    digest: str


def missing_rules(table: Table, plan: FieldPlan) -> dict[str, MissingRule]:
    """Return what happens to missing values of the plan's columns, as their party declared it."""
    return {name: table.preparation.missing_of(name) for name in plan.names}


def keep_network(store: JobStore, job_id: str, weights: bytes) -> str:
    """Write network.safetensors; return its SHA-256, hexadecimal."""
    store.write_bytes(job_id, NETWORK_FILE, weights)
    return hashlib.sha256(weights).hexdigest()


def is_network(store: JobStore, job_id: str) -> bool:
    """Tell whether the model that a job left is a network; False without one."""
    if not store.has(job_id, MODEL_FILE):
        return False
    document = store.read_json(job_id, MODEL_FILE)
    return isinstance(document, dict) and document.get("kind") == _KIND


def load_network(store: JobStore, job_id: str, party: str) -> LoadedNetwork:
    """Return a party's part of the network that a job left.

    Raises:
        UnknownJob: The job left no model here.
        StateError: A file is damaged, of another version, or not the one that training left.
    """
    try:
        content, weights = store.read_bytes(job_id, MODEL_FILE), store.read_bytes(job_id, NETWORK_FILE)
    except UnknownJob as exc:
        raise UnknownJob(
            f"{party} has no network of job {job_id}",
            advice="Only a job that finished leaves a model, and only where its party has kept its state.",
        ) from exc
    try:
        saved = _saved(json.loads(content))
    except (KeyError, TypeError, ValueError, AttributeError, ConfigError, DataError) as exc:
        raise StateError(
            f"the model of job {job_id} is damaged, or of another version",
            where=f"{MODEL_FILE} of {party}",
            advice="Train again.",
        ) from exc
    if hashlib.sha256(weights).hexdigest() != saved.network_sha256:
        raise StateError(
            f"the network of job {job_id} is not the one that training left",
            where=f"{NETWORK_FILE} of {party}",
            advice="Put back the file of that job, or train again.",
        )
    return LoadedNetwork(saved, weights, hashlib.sha256(content).hexdigest())


def _saved(document: Mapping[str, Any]) -> SavedNetwork:
    if document["kind"] != _KIND or document["part"] not in ("passive half", "active half", "student"):
        raise ValueError("this is no network")
    return SavedNetwork(
        job_id=str(document["job_id"]),
        job=str(document["job"]),
        party=str(document["party"]),
        algorithm=str(document["algorithm"]),
        part=document["part"],
        active=str(document["active"]),
        passive=tuple(map(str, document["passive"])),
        rounds=int(document["rounds"]),
        plan=FieldPlan.from_json(document["fields"]),
        missing=dict(document["missing"]),
        network_sha256=str(document["network_sha256"]),
        label=document["label"],
        positive=document["positive"],
        width=int(document["width"]),
        release=Release(document["clip"], float(document["noise"]), int(document["noise_secret"])),
        notes=tuple(map(str, document["notes"])),
        parts=dict(document["parts"]),
    )
