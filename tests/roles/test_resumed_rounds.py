"""Roles that are made anew after every round, from what their parties keep, end with the same bits."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from common.errors import LocalProtocolError
from common.glm.conjugate import ConjugateScalars
from coordinator.he_gram import GramKeyHolder, PackedLengths
from tests.roles.gram_loop import GramLoop, agreement_of, drawn, gram_roles, rowwise_loop

GD = replace(drawn(60, (3, 2)), rounds=4)
CG = replace(GD, solver="cg", rounds=6)
MANY = replace(drawn(60, (2, 2, 2)), rounds=3)


def kept(role):
    """Return what a party keeps of a round, once through JSON."""
    state = role.state() if hasattr(role, "state") else role.solver.state()
    return json.loads(json.dumps(dict(state)))


def with_losses_each_round(setting, make):
    """Train; after every round lose all roles and the key, and go on from what was kept."""
    losses, roles, scalars, turned = [], None, None, ()
    for number in range(1, setting.rounds + 1):
        loop, fresh = make(setting, roles)
        for name, role in fresh.items():
            if roles is not None:
                role.go_on(number - 1, kept(roles[name]))
        if setting.solver == "cg":
            again = setting.scalars(fresh["party_b"].solver)
            if scalars is not None:
                again.restore(json.loads(json.dumps(scalars.state())))
                for role in fresh.values():
                    role.solver.turn(*turned)
            scalars = again
        loss = loop.round(number, fresh)
        if setting.solver == "cg":
            solvers = [role.solver for role in fresh.values()]
            step = scalars.step(sum(solver.curvature_part() for solver in solvers))
            turn = scalars.turn(sum(solver.advance(step) for solver in solvers))
            turned, loss = (turn.mixing, turn.scale), scalars.objective
        losses.append(loss if setting.solver == "cg" else loss / setting.rows)
        roles = fresh
    return losses, {name: role.weights.tolist() for name, role in roles.items()}


def undisturbed(setting, make):
    loop, roles = make(setting, None)
    losses = loop.train(roles).losses
    return losses, {name: role.weights.tolist() for name, role in roles.items()}


def rowwise(setting, earlier):
    return rowwise_loop(setting)


class Gram:
    """Makes roles of Gram rounds that share their products once, and take their shares back later."""

    def __init__(self):
        self.shares = {}

    def __call__(self, setting, earlier):
        loop = GramLoop(setting, GramKeyHolder(agreement_of(setting)), None)
        roles = gram_roles(setting, loop)
        if not self.shares:
            loop.share(roles)
            names = list(roles)
            self.shares = {
                name: {other: role.share_of(other) for other in names if other != name}
                for name, role in roles.items()
            }
        else:
            declare_lengths(loop, roles)
            for name, role in roles.items():
                for other, share in self.shares[name].items():
                    role.restore_share(other, share)
        return loop, roles


def declare_lengths(loop, roles):
    for party, role in roles.items():
        loop.holder.declare(party, PackedLengths(role.round_length, {}))


@pytest.mark.parametrize(
    "setting", [GD, CG, MANY], ids=["gradient-descent", "conjugate-gradients", "several"]
)
@pytest.mark.parametrize("kind", ["rowwise", "gram"])
def test_losing_everything_but_the_disks_after_every_round_changes_no_bit(setting, kind):
    make = rowwise if kind == "rowwise" else Gram()
    losses, weights = undisturbed(setting, make)
    assert with_losses_each_round(setting, make) == (losses, weights)


def test_a_block_does_not_take_the_state_of_another():
    _, roles = rowwise(CG, None)
    with pytest.raises(LocalProtocolError, match="between a step and the next product"):
        roles["party_a"].solver.state()
    with pytest.raises(LocalProtocolError, match="another block"):
        roles["party_a"].go_on(1, {"weights": [1.0]})


def test_scalars_are_not_kept_before_a_round():
    with pytest.raises(LocalProtocolError):
        ConjugateScalars(None, 1.0, 1.0).state()


def test_a_repeated_round_has_the_very_same_scores_under_another_key():
    first, roles = rowwise(GD, None)
    first.round(1, roles)
    plain = []
    for _ in range(2):
        loop, fresh = rowwise(GD, None)
        fresh["party_a"].go_on(1, kept(roles["party_a"]))
        rows = fresh["party_a"].begin(2)
        sealed = loop.arrive(fresh["party_a"].encrypt_scores(slice(0, rows)))
        modulus = loop.holder.key.public.modulus
        residues = loop.holder.key.decrypt_all(sealed.ciphertexts())
        plain.append([value if value < modulus // 2 else value - modulus for value in residues])
    assert plain[0] == plain[1]
