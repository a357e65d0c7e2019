"""SplitNN, one party's half at a time (Gupta and Raskar 2018; PROTOCOLS §3): numpy in, numpy out.

    h = a.forward(rows)                                # at A: (b, width) float32, sent to B
    step = b.step(rows, {"a": h})                      # at B: loss, and ∂loss/∂h by party
    b.settle()                                         # at B: f_B and g move, while ∂loss/∂h is on its way
    a.backward(rows, step.gradients["a"])              # at A

`rows` are positions in the encoded rows that a network was made with. Forward passes may run ahead of the
backward passes (pipelining): each backward uses the weights and the dropout of its own forward.

A party's seed is its own secret where the other is not to know its first weights: B, who knew those of A and
the hash of the fields, could try all categories against A's first outputs.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from common.errors import DataError, LocalProtocolError, NumericError
from common.nets import files
from common.nets.backend import functional, nn, torch
from common.nets.encoded import EncodedRows
from common.nets.learning import Learner
from common.nets.modules import Draws, Encoder, Layers, device, generator, inputs_of
from common.nets.protect import NO_PROTECTION, OPEN_RELEASE, Protection, Release, Singles
from common.nets.shape import FieldLayout, NetSettings
from common.types import Floats, Ints

_PASSIVE, _ACTIVE = "passive half of a network", "active half of a network"
# Forward passes that may wait for their gradients.
_MOST_PENDING = 4
# Rows at once where no gradient is wanted.
_EVALUATION_ROWS = 8192


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What one batch gave.

    Attributes:
        loss: Mean cross-entropy of the batch before the step, of the labels that are trained with.
        gradients: By party, (b, width) float32: ∂loss/∂h, protected; may be seen by that party.
    """

    loss: float
    gradients: Mapping[str, Singles]


class PassiveNetwork:
    """A's half: an encoder of its own fields."""

    def __init__(
        self, rows: EncodedRows, layout: FieldLayout, settings: NetSettings, release: Release = OPEN_RELEASE
    ) -> None:
        """Make a network with new weights over A's encoded rows.

        Raises:
            LocalProtocolError: The rows were encoded for another layout.
        """
        rows.require_fit(layout)
        self._rows, self._layout, self._settings, self._release = rows, layout, settings, release
        encoder = Encoder(layout, settings.shape, generator(settings.seed, "weights passive"))
        self._encoder = encoder.to(device())
        self._learner = Learner(self._encoder, settings.optimisation)
        self._draws = Draws(settings.seed, "passive", settings.shape.dropout)
        self._forwards = 0
        self._pending: deque[tuple[Ints, torch.Tensor, torch.Tensor]] = deque()

    def forward(self, rows: Ints) -> Singles:
        """Return the representations of a training batch, (b, width); sent to B.

        Raises:
            LocalProtocolError: Too many batches wait for their gradients.
        """
        if len(self._pending) >= _MOST_PENDING:
            raise LocalProtocolError("too many forward passes wait for their gradients")
        outputs, squares = self._encoder(inputs_of(self._rows, rows), self._draws)
        outputs = _clipped(outputs, self._release.clip)
        sent = _to_numpy(outputs)
        noise = self._release.training_noise(sent, self._forwards)
        self._forwards += 1
        self._pending.append((rows.copy(), outputs, squares))
        return sent if noise is None else sent + noise

    def backward(self, rows: Ints, gradient: Singles) -> None:
        """Go one step along the gradient that B sent for the oldest forward pass.

        Raises:
            LocalProtocolError: The batch is not the oldest one, or the gradient has another shape.
            NumericError: The gradient is not finite.
        """
        if not self._pending or not np.array_equal(self._pending[0][0], rows):
            raise LocalProtocolError("a gradient came for a batch that is not the oldest one")
        if gradient.shape != self._pending[0][1].shape:
            raise LocalProtocolError("a gradient has another shape than the representations")
        if not np.isfinite(gradient).all():
            raise NumericError("a gradient is not finite", advice="lower the learning rate")
        _, outputs, squares = self._pending.popleft()
        penalty = self._settings.optimisation.embedding_l2 * squares
        incoming = torch.from_numpy(np.array(gradient, dtype=np.float32)).to(outputs.device)
        self._learner.clear()
        torch.autograd.backward([outputs, penalty], [incoming, torch.ones_like(penalty)])
        self._learner.apply()

    def represent(self, rows: Ints) -> Singles:
        """Return representations without dropout, (r, width); they may go to B."""
        parts = [np.empty((0, self._settings.shape.width), dtype=np.float32)]
        about = self._digest() if self._release.noise else b""
        with torch.no_grad():
            for part in _parts(rows):
                outputs, _ = self._encoder(inputs_of(self._rows, part), None)
                sent = _to_numpy(_clipped(outputs, self._release.clip))
                noise = self._release.stored_noise(part, sent.shape[1], about)
                parts.append(sent if noise is None else sent + noise)
        return np.concatenate(parts)

    def _digest(self) -> bytes:
        """Return what tells these weights and these rows from all others."""
        told = hashlib.sha256(self.weights_to_bytes())
        told.update(np.ascontiguousarray(self._rows.indices).data)
        told.update(np.ascontiguousarray(self._rows.numbers).data)
        return told.digest()

    def to_bytes(self) -> bytes:
        """Return everything that goes on bit for bit from here; for A's own disk.

        Raises:
            LocalProtocolError: A batch waits for its gradient.
        """
        if self._pending:
            raise LocalProtocolError("a network is kept between batches, not within one")
        tensors = {**self._learner.state(), "dropout": self._draws.generator.get_state()}
        tensors["forwards"] = torch.tensor(self._forwards)
        return files.to_bytes(_PASSIVE, self._description(), tensors)

    def weights_to_bytes(self) -> bytes:
        """Return the network as a model: without what only training needs."""
        weights = {f"weights.{name}": one for name, one in self._encoder.state_dict().items()}
        return files.to_bytes(_PASSIVE, self._description(), weights)

    @classmethod
    def from_bytes(cls, data: bytes, rows: EncodedRows, release: Release = OPEN_RELEASE) -> PassiveNetwork:
        """Return the network that `to_bytes` or `weights_to_bytes` kept, over these rows.

        Raises:
            DataError: The bytes are something else, or broken.
        """
        description, tensors = files.from_bytes(_PASSIVE, data)
        layout, settings = files.network_from_json(description)
        network = cls(rows, layout, settings, release)
        with files.sound(_PASSIVE):
            network._learner.restore(tensors)
            if "dropout" in tensors:
                network._draws.generator.set_state(tensors["dropout"])
                network._forwards = int(tensors["forwards"])
        return network

    def _description(self) -> dict[str, Any]:
        return files.network_to_json(self._layout, self._settings)


class _ActiveModules(nn.Module):
    """B's bottom and the top above all bottoms."""

    def __init__(self, layout: FieldLayout, settings: NetSettings, parties: int) -> None:
        super().__init__()
        shape = settings.shape
        self.bottom = Encoder(layout, shape, generator(settings.seed, "weights active"))
        sizes = (shape.width * (parties + 1), *shape.top, 1)
        self.top = Layers(sizes, generator(settings.seed, "weights top"))


class ActiveNetwork:
    """B's half: its own encoder, the layers above the cut layer, and the loss."""

    def __init__(
        self,
        rows: EncodedRows,
        labels: Floats,
        layout: FieldLayout,
        settings: NetSettings,
        parties: tuple[str, ...],
        protection: Protection = NO_PROTECTION,
    ) -> None:
        """Make a network with new weights over B's encoded rows.

        Args:
            rows: n rows.
            labels: (n,) of 0 and 1; NaN where a row has none and is never trained on.
            layout: Of B's fields.
            settings: Of B's half; shape and optimisation are the same at all parties.
            parties: Names of the passive parties; the cut layer has them in sorted order behind B.
            protection: Of what is sent back to them.

        Raises:
            DataError: A label is neither 0 nor 1.
            LocalProtocolError: The rows were encoded for another layout.
        """
        rows.require_fit(layout)
        if not np.isin(labels[~np.isnan(labels)], (0.0, 1.0)).all() or len(labels) != len(rows):
            raise DataError("a network needs one label for each row, and all of them 0 or 1")
        self._rows, self._layout, self._settings = rows, layout, settings
        self._parties = tuple(sorted(parties))
        self._protection = protection
        self._labels = protection.labels(labels)
        self._modules = _ActiveModules(layout, settings, len(parties)).to(device())
        self._learner = Learner(self._modules, settings.optimisation)
        self._bottom_draws = Draws(settings.seed, "active", settings.shape.dropout)
        self._top_draws = Draws(settings.seed, "top", settings.shape.dropout)
        # What the bottom made of the next batch, and where its gradient comes from.
        self._ahead: tuple[Ints, torch.Tensor, torch.Tensor] | None = None
        self._unsettled: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None

    def prepare(self, rows: Ints) -> None:
        """Run B's own bottom forward for the next batch, before the others' parts are there."""
        self.settle()
        own, squares = self._modules.bottom(inputs_of(self._rows, rows), self._bottom_draws)
        self._ahead = (rows.copy(), own, squares)

    def step(self, rows: Ints, representations: Mapping[str, Singles]) -> Step:
        """Train on a batch for which all parties sent their representations; `settle` ends the step.

        Raises:
            LocalProtocolError: A party's part is missing or has another shape, or another batch was prepared.
            NumericError: The loss is not finite.
        """
        parts = self._parts(rows, representations)
        if self._ahead is None:
            self.prepare(rows)
        if self._ahead is None or not np.array_equal(self._ahead[0], rows):
            raise LocalProtocolError("a step is taken on another batch than the prepared one")
        (_, own, squares), self._ahead = self._ahead, None
        # The top's own graph ends at the cut layer: what goes back to the parties need not wait for the rest.
        cut = own.detach()
        for part in (cut, *parts):
            part.requires_grad_()
        logits = self._modules.top(torch.cat([cut, *parts], dim=1), self._top_draws)[:, 0]
        labels = self._labels[rows]
        targets = torch.from_numpy(labels.astype(np.float32)).to(logits.device)
        loss = functional.binary_cross_entropy_with_logits(logits, targets)
        value = float(loss.detach())
        if not np.isfinite(value):
            raise NumericError("the loss is not finite", advice="lower the learning rate")
        self._learner.clear()
        torch.autograd.backward(loss)
        if cut.grad is not None:
            self._unsettled = (own, cut.grad, squares)
        step = self._learner.steps
        gradients = {
            party: self._protection.gradient(_to_numpy(part.grad), labels, step, party)
            for party, part in zip(self._parties, parts, strict=True)
            if part.grad is not None
        }
        return Step(value, gradients)

    def settle(self) -> None:
        """Run the last step's backward pass through B's bottom, and move all of B's half; once a step."""
        if self._unsettled is None:
            return
        (own, gradient, squares), self._unsettled = self._unsettled, None
        penalty = self._settings.optimisation.embedding_l2 * squares
        torch.autograd.backward([own, penalty], [gradient, torch.ones_like(penalty)])
        self._learner.apply()

    def logits(self, rows: Ints, representations: Mapping[str, Singles]) -> Floats:
        """Return scores without dropout, (r,); the probability of 1 is σ of them.

        Raises:
            LocalProtocolError: A party's part is missing or has another shape.
        """
        self.settle()
        whole = self._parts(rows, representations)
        scores = [np.empty(0)]
        with torch.no_grad():
            for at in range(0, len(rows), _EVALUATION_ROWS):
                part = slice(at, at + _EVALUATION_ROWS)
                own, _ = self._modules.bottom(inputs_of(self._rows, rows[part]), None)
                top = self._modules.top(torch.cat([own, *(one[part] for one in whole)], dim=1), None)
                scores.append(_to_numpy(top[:, 0]).astype(np.float64))
        return np.concatenate(scores)

    def to_bytes(self) -> bytes:
        """Return everything that goes on bit for bit from here; for B's own disk.

        The protection is not in it: whoever takes the network up gives it again, with the same secret.

        Raises:
            LocalProtocolError: The next batch was prepared.
        """
        if self._ahead is not None:
            raise LocalProtocolError("a network is kept between batches, not within one")
        self.settle()
        tensors = {
            **self._learner.state(),
            "dropout": self._bottom_draws.generator.get_state(),
            "dropout_top": self._top_draws.generator.get_state(),
        }
        return files.to_bytes(_ACTIVE, self._description(), tensors)

    def weights_to_bytes(self) -> bytes:
        """Return the network as a model: without what only training needs."""
        self.settle()
        weights = {f"weights.{name}": one for name, one in self._modules.state_dict().items()}
        return files.to_bytes(_ACTIVE, self._description(), weights)

    @classmethod
    def from_bytes(
        cls, data: bytes, rows: EncodedRows, labels: Floats, protection: Protection = NO_PROTECTION
    ) -> ActiveNetwork:
        """Return the network that `to_bytes` or `weights_to_bytes` kept, over these rows.

        Args:
            data: What was kept.
            rows: n rows.
            labels: (n,); NaN where a row has none, for scoring new rows.
            protection: With the secret that it had.

        Raises:
            DataError: The bytes are something else, or broken.
        """
        description, tensors = files.from_bytes(_ACTIVE, data)
        layout, settings = files.network_from_json(description)
        with files.sound(_ACTIVE):
            parties = tuple(str(one) for one in description["parties"])
        network = cls(rows, labels, layout, settings, parties, protection)
        with files.sound(_ACTIVE):
            network._learner.restore(tensors)
            if "dropout" in tensors:
                network._bottom_draws.generator.set_state(tensors["dropout"])
                network._top_draws.generator.set_state(tensors["dropout_top"])
        return network

    def _parts(self, rows: Ints, representations: Mapping[str, Singles]) -> list[torch.Tensor]:
        shape = (len(rows), self._settings.shape.width)
        if set(representations) != set(self._parties):
            raise LocalProtocolError("a step needs the representations of all parties of the network")
        if any(one.shape != shape for one in representations.values()):
            raise LocalProtocolError(f"representations must have the shape {shape}")
        where = device()
        arrays = [np.array(representations[party], dtype=np.float32) for party in self._parties]
        return [torch.from_numpy(one).to(where) for one in arrays]

    def _description(self) -> dict[str, Any]:
        return {**files.network_to_json(self._layout, self._settings), "parties": list(self._parties)}


def _parts(rows: Ints) -> Iterator[Ints]:
    for at in range(0, len(rows), _EVALUATION_ROWS):
        yield rows[at : at + _EVALUATION_ROWS]


def _clipped(outputs: torch.Tensor, clip: float | None) -> torch.Tensor:
    """Scale rows down whose norm is above the bound; differentiable, and finite at 0."""
    if clip is None:
        return outputs
    norms = outputs.square().sum(dim=1, keepdim=True).add(1e-12).sqrt()
    return outputs * (clip / norms).clamp(max=1.0)


def _to_numpy(tensor: torch.Tensor) -> Singles:
    return np.array(tensor.detach().cpu().numpy(), dtype=np.float32)
