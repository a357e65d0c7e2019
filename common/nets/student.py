"""B's own model: trained at stage 2 from B's rows, its labels and what the teacher left behind; no network
needed.

student, course = Student.train(rows, settings, recipe, patience)
chances = student.probabilities(plan.encode(table))      # asks nobody
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from common.errors import ConfigError, DataError, LocalProtocolError, NumericError
from common.nets import files
from common.nets.backend import torch
from common.nets.batches import batches_in_epoch, epoch_order
from common.nets.encoded import EncodedRows
from common.nets.learning import Learner
from common.nets.modules import Draws, device, inputs_of
from common.nets.protect import Singles
from common.nets.recipe import Patience, Recipe
from common.nets.scores import EarlyStopping, Scores, auc_gain, probabilities, scores_of
from common.nets.shape import FieldLayout, NetSettings
from common.nets.student_loss import Balance, Targets, batch_loss
from common.nets.student_modules import StudentModules
from common.types import Floats, Ints

_KIND = "student"
_EVALUATION_ROWS = 8192


@dataclass(frozen=True, slots=True, eq=False)
class Teacher:
    """What the frozen teacher says about k overlapped rows; B may keep it.

    Attributes:
        rows: (k,) positions among B's rows, each once.
        representations: (k, w_A) float32, h_A as A handed it over; of several parties side by side.
        logits: (k,) of the whole split network.
    """

    rows: Ints
    representations: Singles
    logits: Floats


@dataclass(frozen=True, slots=True, eq=False)
class StudentRows:
    """B's rows at stage 2.

    Attributes:
        rows: n encoded rows.
        layout: Of B's fields.
        labels: (n,) of 0 and 1 where they are trained or validated on.
        training: Positions to train on, overlapped or not.
        validation: Positions that decide when to stop.
        teacher: None without A; then every row counts as one that only B has.
    """

    rows: EncodedRows
    layout: FieldLayout
    labels: Floats
    training: Ints
    validation: Ints
    teacher: Teacher | None = None


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass of one member.

    Attributes:
        member: From 0.
        epoch: From 1.
        loss: Mean of the batches' losses.
        validation: Scores on the validation rows.
    """

    member: int
    epoch: int
    loss: float
    validation: Scores


Watcher = Callable[[Epoch], None]


class Student:
    """A trained student: needs B's columns alone."""

    def __init__(
        self, layout: FieldLayout, settings: NetSettings, recipe: Recipe, members: Sequence[StudentModules]
    ) -> None:
        """Keep trained members; `train` and `from_bytes` make them."""
        self._layout, self._settings, self._recipe = layout, settings, recipe
        self._members = tuple(members)

    @classmethod
    def train(
        cls,
        data: StudentRows,
        settings: NetSettings,
        recipe: Recipe,
        patience: Patience,
        watch: Watcher | None = None,
    ) -> tuple[Student, list[Epoch]]:
        """Train every member until its validation score no longer grows; keep the best epoch of each.

        The first member says for all whether the teacher is followed, and by which factor labels count.

        Args:
            data: B's rows.
            settings: Of each encoder and head; a member's seed is derived from `seed`.
            recipe: Which student.
            patience: How long.
            watch: Called after every epoch; an exception from it ends the training.

        Raises:
            DataError: A label is neither 0 nor 1, or there is no row to train or to validate on.
            ConfigError: The recipe needs a teacher and there is none.
            NumericError: The loss is not finite.
        """
        _check(data, recipe)

        def trained(member: int, tried: Recipe) -> _Course:
            own = replace(settings, seed=settings.seed * 1_000_003 + member)
            course = _Course(data, own, tried, patience)
            course.run(member, watch)
            return course

        best = trained(0, recipe.untaught) if recipe.trust == "checked" else None
        if best is None or best.finds_better(data.teacher):
            first, *others = recipe.tried
            best = trained(0, first)
            for other in others:
                best = max(best, trained(0, other), key=lambda one: one.stopping.best)
        courses = [best, *(trained(member, best.recipe) for member in range(1, recipe.members))]
        student = cls(data.layout, settings, best.recipe, [one.modules for one in courses])
        return student, [epoch for one in courses for epoch in one.epochs]

    @property
    def label_factor(self) -> float:
        """Which of the recipe's factors of the labels did best on the validation rows."""
        return self._recipe.label_factors[0]

    @property
    def taught(self) -> bool:
        """Whether it followed a teacher."""
        return self._recipe.needs_teacher

    def first(self, members: int) -> Student:
        """Return the student of its first members: what a recipe with so many would have trained.

        Raises:
            LocalProtocolError: It has not so many.
        """
        if not 1 <= members <= len(self._members):
            raise LocalProtocolError("a student has not so many members")
        recipe = replace(self._recipe, members=members)
        return Student(self._layout, self._settings, recipe, self._members[:members])

    def logits(self, rows: EncodedRows) -> Floats:
        """Return scores (n,); the mean over members.

        Raises:
            LocalProtocolError: The rows were encoded for another layout.
        """
        rows.require_fit(self._layout)
        total = np.zeros(len(rows))
        for modules in self._members:
            total += _logits(modules, rows, np.arange(len(rows)))
        return total / len(self._members)

    def probabilities(self, rows: EncodedRows) -> Floats:
        """Return the probability of 1 for each row, (n,)."""
        return probabilities(self.logits(rows))

    def to_bytes(self) -> bytes:
        """Return the model, bit for bit; it holds nothing of A's rows but what the weights learnt."""
        tensors = {
            f"member{at}.{name}": tensor
            for at, modules in enumerate(self._members)
            for name, tensor in modules.state_dict().items()
        }
        described = {
            **files.network_to_json(self._layout, self._settings),
            "recipe": asdict(self._recipe),
            "width": self._members[0].width,
        }
        return files.to_bytes(_KIND, described, tensors)

    @classmethod
    def from_bytes(cls, data: bytes) -> Student:
        """Return the student that `to_bytes` kept.

        Raises:
            DataError: The bytes are something else, or broken.
        """
        description, tensors = files.from_bytes(_KIND, data)
        layout, settings = files.network_from_json(description)
        with files.sound(_KIND):
            recipe = files.recipe_from_json(description["recipe"])
            width = int(description["width"])
            members = []
            for at in range(recipe.members):
                modules = StudentModules(layout, settings.shape, width, recipe.heads, 0)
                start = f"member{at}."
                own = {
                    name.removeprefix(start): one for name, one in tensors.items() if name.startswith(start)
                }
                modules.load_state_dict(own)
                members.append(modules.to(device()))
        return cls(layout, settings, recipe, members)


class _Course:
    """The training of one member."""

    def __init__(self, data: StudentRows, settings: NetSettings, recipe: Recipe, patience: Patience) -> None:
        self._data, self.recipe, self._weighed, self._patience = data, recipe, recipe.weighed, patience
        self.stopping = EarlyStopping(patience)
        self.epochs: list[Epoch] = []
        self._seed = settings.seed
        self._l2 = settings.optimisation.embedding_l2
        width = settings.shape.width if data.teacher is None else data.teacher.representations.shape[1]
        modules = StudentModules(data.layout, settings.shape, width, recipe.heads, settings.seed)
        self.modules = modules.to(device())
        self._learner = Learner(self.modules, settings.optimisation)
        self._draws = Draws(settings.seed, "student", settings.shape.dropout)
        # Where a row stands in what the teacher left, −1 for nowhere.
        self._place = np.full(len(data.rows), -1, dtype=np.int64)
        if data.teacher is not None:
            self._place[data.teacher.rows] = np.arange(len(data.teacher.rows))
        known = self._place[data.training] >= 0
        self._shared, self._own = data.training[known], data.training[~known]
        self._balance = Balance.of(len(self._shared), len(self._own), recipe.beta)

    def run(self, member: int, watch: Watcher | None) -> None:
        """Train; leave the epochs, and the modules as they were in the best one."""
        stopping, best = self.stopping, self.modules.state_dict()
        validation = self._data.validation
        while not stopping.ended:
            loss = self._epoch(stopping.epoch)
            scores = scores_of(
                self._data.labels[validation], _logits(self.modules, self._data.rows, validation)
            )
            if stopping.better(scores):
                best = copy.deepcopy(self.modules.state_dict())
            self.epochs.append(Epoch(member, stopping.epoch, loss, scores))
            if watch is not None:
                watch(self.epochs[-1])
        self.modules.load_state_dict(best)

    def finds_better(self, teacher: Teacher | None) -> bool:
        """Whether the teacher ranks overlapped validation rows better, by more than one standard error.

        Rows that cannot tell, because there are hardly any of one class, speak for the teacher.
        """
        rows = self._data.validation[self._place[self._data.validation] >= 0]
        if teacher is None or not len(rows):
            return True
        alone = _logits(self.modules, self._data.rows, rows)
        gain, error = auc_gain(self._data.labels[rows], teacher.logits[self._place[rows]], alone)
        return not gain <= error

    def _epoch(self, epoch: int) -> float:
        orders = [
            rows[epoch_order(len(rows), self._seed, 2 * epoch + at)]
            for at, rows in enumerate((self._shared, self._own))
        ]
        steps = batches_in_epoch(sum(map(len, orders)), self._patience.batch_size)
        losses = []
        for step in range(steps):
            shared, own = (
                rows[len(rows) * step // steps : len(rows) * (step + 1) // steps] for rows in orders
            )
            losses.append(self._step(shared, own))
        return float(np.mean(losses))

    def _step(self, shared: Ints, own: Ints) -> float:
        rows = np.concatenate([shared, own])
        views = self.modules(inputs_of(self._data.rows, rows), self._draws)
        loss = batch_loss(views, self._targets(shared, rows), self._weighed, self._balance)
        value = float(loss.detach())
        if not np.isfinite(value):
            raise NumericError("the student's loss is not finite", advice="lower the learning rate")
        self._learner.clear()
        torch.autograd.backward(loss + self._l2 * views.squares)
        self._learner.apply()
        return value

    def _targets(self, shared: Ints, rows: Ints) -> Targets:
        teacher = self._data.teacher
        labels = _single(self._data.labels[rows])
        if teacher is None or not self._weighed.needs_teacher:
            return Targets(labels, len(shared), None, None)
        places = self._place[shared]
        known, logits = teacher.representations[places], teacher.logits[places]
        return Targets(labels, len(shared), _single(known), _single(logits))


def _logits(modules: StudentModules, rows: EncodedRows, chosen: Ints) -> Floats:
    parts = [np.empty(0)]
    with torch.no_grad():
        for at in range(0, len(chosen), _EVALUATION_ROWS):
            views = modules(inputs_of(rows, chosen[at : at + _EVALUATION_ROWS]), None)
            parts.append(views.prediction.cpu().numpy().astype(np.float64))
    return np.concatenate(parts)


def _single(values: Floats | Singles) -> torch.Tensor:
    return torch.from_numpy(np.array(values, dtype=np.float32)).to(device())


def _check(data: StudentRows, recipe: Recipe) -> None:
    data.rows.require_fit(data.layout)
    if not len(data.training) or not len(data.validation):
        raise DataError("a student needs rows to train on and rows to validate on")
    used = data.labels[np.concatenate([data.training, data.validation])]
    if not np.isin(used, (0.0, 1.0)).all():
        raise DataError("a student needs labels of 0 and 1")
    teacher = data.teacher
    if teacher is None:
        if recipe.needs_teacher:
            raise ConfigError("this student needs what a teacher left behind, and there is none")
        return
    rows = len(teacher.rows)
    if teacher.representations.ndim != 2 or not len(teacher.representations) == len(teacher.logits) == rows:
        raise LocalProtocolError("a teacher has a representation and a logit for each of its rows")
    if len(np.unique(teacher.rows)) < rows or not (np.isfinite(teacher.logits).all()):
        raise LocalProtocolError("a teacher has every row once, and finite logits")
    if not np.isfinite(teacher.representations).all():
        raise LocalProtocolError("a representation is not finite")
