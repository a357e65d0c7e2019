"""What a role in a linear job is made of besides its columns: the solver, and the tools of Gram rounds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from common.crypto.cipher import Cipher
from common.crypto.entropy import SystemEntropy
from common.crypto.fixed_point import FixedPoint
from common.crypto.gram_plan import GramPlan, GramRequest, prove_gram
from common.crypto.gram_setup import GramTools
from common.glm.conjugate import ConjugateScalars
from common.glm.solvers import BlockSolver, BlockSystem, ConjugateBlock, GradientDescent
from common.runtime.config.job import JobConfig
from common.runtime.linear_design import LinearDesign, loss_of
from common.types import Floats


def passive_solver(design: LinearDesign, job: JobConfig, learning_rate: float) -> BlockSolver:
    """Return the solver of a party without labels: it begins at zero."""
    loss = loss_of(job)
    if job.train.solver == "gd":
        return GradientDescent(design.step(learning_rate), loss)
    return ConjugateBlock(_system(design, job), np.zeros(design.columns))


def active_solver(
    design: LinearDesign, job: JobConfig, learning_rate: float, labels: Floats
) -> tuple[BlockSolver, ConjugateScalars | None]:
    """Return the active party's solver and, for conjugate gradients, the scalars that it keeps for all.

    Gradient descent begins at zero, conjugate gradients at the active party's own solution.

    Args:
        design: Of the active party.
        job: The job.
        learning_rate: Of gradient descent.
        labels: Of the training rows, (n,).
    """
    loss = loss_of(job)
    if job.train.solver == "gd":
        return GradientDescent(design.step(learning_rate), loss), None
    rows, system = design.matrix[design.train], _system(design, job)
    right = loss.label_factor * (rows.T @ labels) / len(labels)
    block = ConjugateBlock(system, system.inverse() @ right)
    objective = loss.mean(rows @ block.weights, labels) + block.penalty()
    return block, ConjugateScalars(job.train.tolerance, objective, float(right @ block.weights))


def prove_gram_plan(job: JobConfig, rows: int, columns: Mapping[str, int]) -> GramPlan:
    """Prove the slots and masks of Gram rounds.

    Args:
        job: The job.
        rows: Training rows.
        columns: Of every party that has columns, the labels not counted.

    Raises:
        NumericError: Not one slot fits the key.
    """
    crypto = job.crypto
    return prove_gram(GramRequest(crypto.key_bits, crypto.precision_bits, rows, sum(columns.values()) + 1))


def gram_tools(job: JobConfig, rows: int, columns: Mapping[str, int], cipher: Cipher) -> GramTools:
    """Return what a role in Gram rounds computes with; proves the plan as `prove_gram_plan` does."""
    plan = prove_gram_plan(job, rows, columns)
    return GramTools(cipher, FixedPoint(job.crypto.precision_bits), plan, SystemEntropy())


def _system(design: LinearDesign, job: JobConfig) -> BlockSystem:
    return BlockSystem.of(design.features, design.matrix[design.train], design.penalties, loss_of(job))
