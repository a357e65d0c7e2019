"""The published protocol written down literally with phe's own objects, in one process.

This is the code that a reader of the paper writes first: `public_key.encrypt` for every row, numpy arrays of
EncryptedNumber, `dot`. It is here to be measured, not to be used: adding a plaintext to an EncryptedNumber
does not re-randomise it, phe's exponents travel in the clear, and a mask below 1 hides nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import phe

from benchmarks.literal_phe.reference_run import COLUMNS_OF_A, Floats, ReferenceRun


@dataclass(frozen=True, slots=True)
class LiteralResult:
    """The sum-form loss and the seconds of every round; making the key is not among the seconds."""

    losses: Floats
    seconds: tuple[float, ...]


def run_literally(run: ReferenceRun, rounds: int) -> LiteralResult:
    """Run some rounds with a fresh key of the job's size."""
    public_key, private_key = phe.generate_paillier_keypair(n_length=run.job.crypto.key_bits)
    X_A, X_B = run.features[:, :COLUMNS_OF_A], run.features[:, COLUMNS_OF_A:]
    w_A, w_B = np.zeros(X_A.shape[1]), np.zeros(X_B.shape[1])
    losses, seconds = [], []
    for _ in range(rounds):
        start_s = time.perf_counter()
        # Step 1, at A: [[u_A]] and [[L_A]] to B.
        u_A = X_A @ w_A
        encrypted_u_A = np.array([public_key.encrypt(float(value)) for value in u_A])
        encrypted_L_A = public_key.encrypt(float(0.5 * u_A @ u_A + 0.5 * run.penalty * w_A @ w_A))
        # Step 2, at B: [[d]] to A, [[L]] to C.
        z = X_B @ w_B - run.labels
        encrypted_d = encrypted_u_A + z
        L_B = 0.5 * z @ z + 0.5 * run.penalty * w_B @ w_B
        encrypted_L = encrypted_L_A + L_B + np.sum(encrypted_u_A * z)
        # Step 3: each party's gradient, masked, through C.
        gradients = []
        for X, w in ((X_A, w_A), (X_B, w_B)):
            mask = np.random.default_rng().random(len(w))
            masked = X.T.dot(encrypted_d) + run.penalty * w + mask
            gradients.append(np.array([private_key.decrypt(value) for value in masked]) - mask)
        losses.append(private_key.decrypt(encrypted_L))
        # Step 4.
        w_A = w_A - run.learning_rate * gradients[0] / run.rows
        w_B = w_B - run.learning_rate * gradients[1] / run.rows
        seconds.append(time.perf_counter() - start_s)
    return LiteralResult(np.array(losses), tuple(seconds))
