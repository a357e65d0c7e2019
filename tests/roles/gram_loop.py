"""Gram and row-wise rounds as loops without network, for any loss and either solver, on the same columns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from common.crypto.cipher import CipherVector, PaillierCipher, SealedVector, parse_ciphertexts
from common.crypto.entropy import SystemEntropy
from common.crypto.fixed_point import FixedPoint
from common.crypto.gram_plan import GramRequest, prove_gram
from common.crypto.gram_setup import GramTools
from common.crypto.plan import gradient_packing
from common.crypto.private_key import PrivateKey
from common.data.split import BatchSchedule
from common.glm.conjugate import ConjugateScalars
from common.glm.gradient_descent import GradientStep
from common.glm.losses import SQUARED, QuadraticLoss
from common.glm.solvers import BlockSolver, BlockSystem, ConjugateBlock, GradientDescent
from common.runtime.compute import InProcessExecutor
from coordinator.he_gram import GramKeyHolder, PackedLengths
from coordinator.he_linear import Agreement, KeyHolder
from party_a.he_gram import PassiveGram
from party_a.he_linear import PassiveRegression
from party_b.he_gram import ActiveGram
from party_b.he_linear import ActiveRegression, LabelledRows

KEY_BITS = 512
_CHUNK = 50  # rows; more than one chunk in every test


@dataclass
class Setting:
    """One problem: columns by passive party, the active party's, its labels, and how they are trained.

    The active party's last column is the intercept, which is not penalised.
    """

    passive: dict[str, np.ndarray]
    active: np.ndarray
    labels: np.ndarray
    l2: float = 0.01
    loss: QuadraticLoss = SQUARED
    solver: str = "gd"
    rate: float = 0.1
    rounds: int = 5
    scale_bits: int = 32
    tolerance: float | None = None

    @property
    def rows(self) -> int:
        return len(self.labels)

    def penalties(self, columns: int, party: str) -> np.ndarray:
        values = np.full(columns, self.l2)
        if party == "party_b":
            values[-1] = 0
        return values

    def solver_of(self, party: str) -> BlockSolver:
        X = self.passive.get(party, self.active)
        names, penalties = tuple(map(str, range(X.shape[1]))), self.penalties(X.shape[1], party)
        if self.solver == "gd":
            return GradientDescent(GradientStep(names, self.rate, penalties), self.loss)
        system = BlockSystem.of(names, X, penalties, self.loss)
        start = np.zeros(X.shape[1])
        if party == "party_b":
            start = system.inverse() @ self.right
        return ConjugateBlock(system, start)

    @property
    def right(self) -> np.ndarray:
        return self.loss.label_factor * self.active.T @ self.labels / self.rows

    def scalars(self, active: BlockSolver) -> ConjugateScalars:
        at_start = self.loss.mean(self.active @ active.weights, self.labels) + active.penalty()
        return ConjugateScalars(self.tolerance, at_start, float(self.right @ active.weights))


@dataclass
class Run:
    """What a loop leaves."""

    weights: np.ndarray
    losses: list[float]
    sent: dict[str, list[SealedVector]] = field(default_factory=dict)
    decrypted: list[int] = field(default_factory=list)
    roles: dict[str, Any] = field(default_factory=dict)
    key: PrivateKey | None = None


class Loop:
    """What both loops share: the key holder, the cipher, and crossing from party to party as bytes."""

    def __init__(self, setting: Setting, holder: KeyHolder, key: PrivateKey | None) -> None:
        self.setting, self.holder = setting, holder
        for party, X in (*setting.passive.items(), ("party_b", setting.active)):
            holder.open(party, X.shape[1])
        holder.use_key(key or PrivateKey.generate(KEY_BITS, SystemEntropy()))
        self.cipher = PaillierCipher(holder.key.public, InProcessExecutor(), SystemEntropy())
        self.scale = FixedPoint(setting.scale_bits)
        self.run = Run(np.zeros(0), [], key=holder.key)

    def arrive(self, sealed: SealedVector, kind: str = "") -> CipherVector:
        self.run.sent.setdefault(kind, []).append(sealed)
        return parse_ciphertexts(sealed.to_bytes(), self.holder.key.public, len(sealed))

    def gradient(self, party: str, number: int, sealed: SealedVector) -> tuple[int, ...]:
        residues = self.holder.decrypt_gradient(party, number, self.arrive(sealed, f"result of {party}"))
        self.run.decrypted += residues
        return residues

    def train(self, roles: dict[str, Any]) -> Run:
        """Run all rounds; `roles` has the active party's last."""
        setting, active = self.setting, roles["party_b"]
        solvers = [role.solver for role in roles.values()]
        scalars = setting.scalars(active.solver) if setting.solver == "cg" else None
        for number in range(1, setting.rounds + 1):
            loss = self.round(number, roles)
            if scalars is None:
                self.run.losses.append(loss / setting.rows)
                continue
            step = scalars.step(sum(solver.curvature_part() for solver in solvers))
            turn = scalars.turn(sum(solver.advance(step) for solver in solvers))
            self.run.losses.append(scalars.objective)
            if scalars.converged:
                break
            for solver in solvers:
                solver.turn(turn.mixing, turn.scale)
        self.run.weights = np.concatenate([solver.weights for solver in solvers])
        self.run.roles = roles
        return self.run

    def round(self, number: int, roles: dict[str, Any]) -> float:
        raise NotImplementedError


class RowwiseLoop(Loop):
    """Rounds of PROTOCOLS 1.1."""

    def round(self, number: int, roles: dict[str, Any]) -> float:
        *passive, active = roles.values()
        rows = active.begin(number)
        for role in passive:
            role.begin(number)
        alone, gd = len(passive) == 1, self.setting.solver == "gd"
        shares = [self.arrive(role.loss_share_from_scores()) for role in passive if alone]
        for first in range(0, rows, _CHUNK):
            chunk = slice(first, min(first + _CHUNK, rows))
            d = active.add_residuals([self.arrive(role.encrypt_scores(chunk)) for role in passive])
            for role in passive:
                role.absorb_residuals(self.arrive(d))
        for name, role in list(roles.items())[:-1]:
            role.apply(self.gradient(name, number, role.masked_gradient()))
        if not alone:
            shares = [self.arrive(role.loss_share_from_gradient()) for role in passive]
        loss = 0.0
        if gd:
            sealed = self.arrive(active.encrypted_loss(shares), "loss")
            loss = active.decode_loss(self.holder.decrypt_loss("party_b", number, sealed))
        active.apply(self.gradient("party_b", number, active.masked_gradient()))
        return loss


class GramLoop(Loop):
    """Set-up and rounds of PROTOCOLS 1.4."""

    def share(self, roles: dict[str, Any]) -> None:
        """Set up every pair; a party holds the sums with those after it, the active party with all."""
        holders = ["party_b", *self.setting.passive]
        pairs = [(h, m) for at, h in enumerate(holders) for m in holders[at + 1 :]]
        for party, role in roles.items():
            products = {m: role.sharing.products_length(m) for h, m in pairs if h == party}
            self.holder.declare(party, PackedLengths(role.round_length, products))
        for h, m in pairs:
            roles[m].sharing.begin_masking(h)
            for first in range(0, self.setting.rows, _CHUNK):
                rows = slice(first, min(first + _CHUNK, self.setting.rows))
                packed = self.arrive(roles[h].sharing.encrypt_rows(rows), f"rows of {h}")
                roles[m].sharing.absorb_rows(h, packed)
            products = self.arrive(roles[m].masked_products(h), f"products of {m} for {h}")
            blinded = self.arrive(roles[h].sharing.blind_products(m, products), f"blinded by {h}")
            residues = self.holder.decrypt_products(h, m, blinded)
            self.run.decrypted += residues
            roles[h].take_products(m, residues)

    def round(self, number: int, roles: dict[str, Any]) -> float:
        sent = {party: role.encrypt_direction(number) for party, role in roles.items()}
        for receiver, role in roles.items():
            for sender, direction in sent.items():
                if sender != receiver:
                    block = self.arrive(direction.block, f"direction of {sender}")
                    complement = self.arrive(direction.complements[receiver], f"complement of {sender}")
                    role.absorb_direction(sender, block, complement)
        for party, role in roles.items():
            role.apply(self.gradient(party, number, role.masked_product()))
        if self.setting.solver == "cg":
            return 0.0
        *passive, active = roles.values()
        shares = [self.arrive(role.loss_share(), "loss share") for role in passive]
        sealed = self.arrive(active.encrypted_loss(shares), "loss")
        return active.decode_loss(self.holder.decrypt_loss("party_b", number, sealed))


def agreement_of(setting: Setting) -> Agreement:
    return Agreement("party_b", tuple(setting.passive), setting.rounds, int(setting.solver == "gd"))


def rowwise_loop(setting: Setting, key: PrivateKey | None = None) -> tuple[RowwiseLoop, dict[str, Any]]:
    """Return row-wise rounds and their roles; the active party's comes last."""
    slots = gradient_packing(KEY_BITS if key is None else key.public.bits, setting.scale_bits).slots
    loop = RowwiseLoop(setting, KeyHolder(replace(agreement_of(setting), gradient_slots=slots)), key)
    schedule, entropy = BatchSchedule(setting.rows, None, 0), SystemEntropy()
    roles: dict[str, Any] = {
        party: PassiveRegression(X, schedule, setting.solver_of(party), loop.cipher, loop.scale, entropy)
        for party, X in setting.passive.items()
    }
    labelled = LabelledRows(setting.active, setting.labels)
    solver = setting.solver_of("party_b")
    roles["party_b"] = ActiveRegression(labelled, schedule, solver, loop.cipher, loop.scale, entropy)
    return loop, roles


def run_rowwise(setting: Setting, key: PrivateKey | None = None) -> Run:
    """Train row by row."""
    loop, roles = rowwise_loop(setting, key)
    return loop.train(roles)


def gram_roles(setting: Setting, loop: Loop) -> dict[str, Any]:
    """Return the roles of Gram rounds; the active party's comes last."""
    widths = {party: X.shape[1] for party, X in setting.passive.items()}
    everybody = widths | {"party_b": setting.active.shape[1]}
    request = GramRequest(KEY_BITS, setting.scale_bits, setting.rows, sum(everybody.values()) + 1)
    tools = GramTools(loop.cipher, loop.scale, prove_gram(request), SystemEntropy())
    roles: dict[str, Any] = {}
    for party, X in setting.passive.items():
        others = {name: width for name, width in everybody.items() if name != party}
        roles[party] = PassiveGram(X, setting.solver_of(party), tools, others, "party_b")
    labelled = LabelledRows(setting.active, setting.labels)
    roles["party_b"] = ActiveGram(labelled, setting.solver_of("party_b"), tools, widths)
    return roles


def run_gram(setting: Setting, key: PrivateKey | None = None) -> Run:
    """Train with Gram rounds."""
    loop = GramLoop(setting, GramKeyHolder(agreement_of(setting)), key)
    roles = gram_roles(setting, loop)
    loop.share(roles)
    return loop.train(roles)


def drawn(rows: int, widths: tuple[int, ...], seed: int = 1, mix: float = 1.0) -> Setting:
    """Draw a problem: the last width is the active party's, to which the intercept is added."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, sum(widths)))
    X = X + mix * X @ rng.normal(size=(sum(widths), sum(widths))) / np.sqrt(sum(widths))
    labels = 4 + X @ rng.normal(size=sum(widths)) + rng.normal(size=rows)
    *passive, active = np.split(X, np.cumsum(widths)[:-1], axis=1)
    names = [f"party_a{number or ''}" for number in range(len(passive))]
    return Setting(dict(zip(names, passive, strict=True)), np.column_stack([active, np.ones(rows)]), labels)
