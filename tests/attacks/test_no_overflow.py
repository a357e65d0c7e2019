"""Rule 1.2.7: nothing overflows, and no key is shorter than 2048 bits outside tests."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from common.crypto.entropy import SystemEntropy
from common.crypto.private_key import PrivateKey
from common.errors import ConfigError, PeerFailed, PeerRefused, RemoteProtocolError
from common.rpc.pb.active_party_pb2 import JOB_FAILED, JOB_FINISHED, JobRecord
from common.runtime.config.errors import UNSAFE_TEST_KEYS
from common.runtime.config.job import JobConfig, load_job
from common.runtime.config.party import load_party, warn_of_missing_protection
from common.runtime.linear_design import cipher_for
from tests.attacks.byhand import by_hand
from tests.attacks.oracle import oracle_of
from tests.attacks.world import CALL_S, Rows, World, job_of, opening

ROWS = Rows.drawn(40, (4, 3))


async def trained(world: World, job: JobConfig) -> JobRecord:
    async with world.running("coordinator", "party_a", "party_b"):
        return await world.train(job)


def crossed(world: World) -> set[str]:
    """Return the short names of all messages that were on any wire."""
    return {
        passage.message_type.rpartition(".")[2] for passages in world.wire.values() for passage in passages
    }


def with_cell(rows: Rows, table: str, value: float) -> Rows:
    changed = {name: getattr(rows, name).copy() for name in ("passive", "active", "labels")}
    changed[table][(7, 2) if changed[table].ndim == 2 else 7] = value
    return Rows(**changed)


@pytest.mark.parametrize(("key_bits", "precision"), [(160, 32), (224, 60), (128, 12)])
async def test_a_job_whose_sums_may_not_fit_its_key_is_refused_by_b_before_round_1(
    world: World, key_bits: int, precision: int
) -> None:
    world.policy = {"min_key_bits": 128, "min_rows": 1, "min_intersection": 1}
    ROWS.write(world)
    record = await trained(world, job_of(crypto={"key_bits": key_bits, "precision_bits": precision}))
    assert (record.status, record.error.error) == (JOB_FAILED, "NumericError")
    assert f"may not fit a {key_bits}-bit key" in record.error.what
    assert "set crypto.precision_bits" in record.error.advice or "longer key" in record.error.advice
    assert not crossed(world) & {"PrepareRequest", "EncryptedScores", "MaskedGradient"}


async def test_a_proves_the_ranges_itself_whatever_b_says(world: World) -> None:
    ROWS.write(world)
    world.policy = {"min_key_bits": 128, "min_rows": 1, "min_intersection": 1}
    job = job_of(crypto={"key_bits": 224, "precision_bits": 60})
    async with by_hand(world, job, (4, 4)) as b:
        await b.open()
        with pytest.raises(PeerFailed, match="may not fit a 224-bit key"):
            await b.prepare(40)
    assert not crossed(world) & {"EncryptedScores", "MaskedGradient"}


async def test_a_counts_its_own_rows_not_those_that_b_names(world: World) -> None:
    ROWS.write(world)
    async with by_hand(world, job_of(), (4, 4)) as b:
        await b.open()
        with pytest.raises(PeerRefused, match="39 training rows there, 40 here"):
            await b.prepare(39)


@pytest.mark.parametrize("table", ["passive", "active"])
async def test_a_feature_beyond_the_limit_is_refused_at_either_side(world: World, table: str) -> None:
    with_cell(ROWS, table, 2.0**41).write(world)
    record = await trained(world, job_of())
    assert record.status == JOB_FAILED
    assert "has 1 values beyond" in record.error.what
    # A peer's error reaches B's operator as the peer's; the feature is named, its value is not.
    assert record.error.error == ("PeerFailed" if table == "passive" else "NumericError")
    assert repr(2.0**41) not in str(record.error)
    assert not crossed(world) & {"EncryptedScores", "MaskedGradient"}


async def test_a_label_beyond_the_limit_ends_the_job_before_anything_is_sent(world: World) -> None:
    with_cell(ROWS, "labels", 2.0**51).write(world)
    record = await trained(world, job_of())
    assert (record.status, record.error.error) == (JOB_FAILED, "NumericError")
    assert "the scores have left" in record.error.what
    assert not crossed(world) & {"EncryptedResiduals", "MaskedGradient"}


@pytest.mark.parametrize("table", ["passive", "active", "labels"])
async def test_what_would_be_rounded_away_is_refused_at_either_side(world: World, table: str) -> None:
    replace(ROWS, **{table: getattr(ROWS, table) * 1e-12}).write(world)
    record = await trained(world, job_of())
    assert record.error.error == ("PeerFailed" if table == "passive" else "NumericError")
    assert "bits of precision would round it away" in record.error.what
    assert not crossed(world) & {"EncryptedScores", "MaskedGradient"}


async def test_labels_that_are_all_the_same_are_no_matter_of_precision(world: World) -> None:
    replace(ROWS, labels=np.full_like(ROWS.labels, 0.1)).write(world)
    assert (await trained(world, job_of())).status == JOB_FINISHED


async def test_scores_that_run_away_end_the_job_before_they_leave_the_range(world: World) -> None:
    """A step of 1e5 multiplies the scores in every round; nothing wraps around N on the way."""
    ROWS.write(world)
    record = await trained(world, job_of(train={"learning_rate": 1e5, "max_rounds": 30}))
    assert record.status == JOB_FAILED
    assert record.error.error in ("NumericError", "PeerFailed")
    assert "the scores have left" in record.error.what
    assert 0 < record.rounds < 30


async def test_values_at_the_limits_do_not_wrap_around(world: World) -> None:
    """Features of 2^39 and labels of 2^49: the gradients are the largest that the plan allows."""
    rng = np.random.default_rng(4)
    passive, active = rng.choice([-1.0, 1.0], size=(2, 40, 3)) * 2.0**39
    labels = rng.choice([-1.0, 1.0], size=40) * 2.0**49
    Rows(passive, active, labels).write(world)
    rate = 1e-26
    job = job_of(train={"learning_rate": rate, "max_rounds": 1}, data={"intercept": False}, model={"l2": 0.0})
    record = await trained(world, job)
    assert record.status == JOB_FINISHED, record.error.what
    for party, features in (("party_a", passive), ("party_b", active)):
        (path,) = (world.root / "state" / party).rglob("model.json")
        found = np.array(json.loads(path.read_text())["coefficients"])
        assert found == pytest.approx(rate * features.T @ labels / 40, rel=1e-9)
    assert record.loss == pytest.approx(0.5 * 2.0**98, rel=1e-9)


@pytest.mark.parametrize("receiver", ["party_a", "coordinator"])
async def test_a_service_admits_no_short_key_unless_its_own_switch_is_set(
    world: World, monkeypatch: pytest.MonkeyPatch, receiver: str
) -> None:
    """Whatever the other side has switched on: the bytes of the job are checked where they arrive."""
    ROWS.write(world)
    async with by_hand(world, job_of(), (4, 4)), world.dialled(receiver, "party_b") as stub:
        monkeypatch.delenv(UNSAFE_TEST_KEYS)
        for key_bits in (256, 1024, 2032):
            job = job_of(crypto={"key_bits": key_bits})
            with pytest.raises(PeerRefused, match="keys below 2048 bits protect nothing"):
                await stub.OpenJob(opening(job, "party_b", receiver), timeout=CALL_S)


@pytest.mark.parametrize("receiver", ["party_a", "coordinator"])
async def test_a_policy_asks_for_2048_bits_even_where_the_switch_is_set(world: World, receiver: str) -> None:
    world.policy = {"min_rows": 1, "min_intersection": 1}
    ROWS.write(world)
    async with by_hand(world, job_of(), (4, 4)), world.dialled(receiver, "party_b") as stub:
        for preflight in (True, False):
            request = opening(job_of(crypto={"key_bits": 2032}), "party_b", receiver)
            request.preflight = preflight
            with pytest.raises(PeerRefused, match=f"policy of {receiver} asks for keys of 2048 bits"):
                await stub.OpenJob(request, timeout=CALL_S)


async def test_b_takes_no_job_with_a_short_key_unless_its_own_switch_is_set(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.running("party_b"):
        job = job_of()
        monkeypatch.delenv(UNSAFE_TEST_KEYS)
        with pytest.raises(PeerRefused, match="keys below 2048 bits protect nothing"):
            await world.train(job)


@pytest.mark.parametrize("value", ["", "0", "yes", "true"])
def test_files_with_short_keys_are_refused_unless_the_switch_is_1(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str
) -> None:
    world.config("party_a")
    path = tmp_path / "job.yaml"
    path.write_bytes(job_of(crypto={"key_bits": 2032}).canonical_json())
    monkeypatch.setenv(UNSAFE_TEST_KEYS, value)
    with pytest.raises(ConfigError, match="keys below 2048 bits"):
        load_job(path)
    with pytest.raises(ConfigError, match="keys below 2048 bits"):
        load_party(world.root / "party_a.yaml")


def test_the_switch_shouts(world: World, caplog: pytest.LogCaptureFixture) -> None:
    warn_of_missing_protection(world.config("party_a"))
    (warning,) = [record for record in caplog.records if UNSAFE_TEST_KEYS in record.getMessage()]
    assert warning.levelname == "WARNING"
    assert "FOR TESTS ONLY" in warning.getMessage()


def test_a_key_of_another_length_than_agreed_is_not_used() -> None:
    """C could answer a job of 2048 bits with a shorter key."""
    key = PrivateKey.generate(192, SystemEntropy()).public
    with pytest.raises(RemoteProtocolError, match="the key has 192 bits, the job says 256"):
        cipher_for(job_of(), key, None)


@pytest.mark.parametrize("key_bits", [256, 384])
async def test_c_makes_a_key_of_the_length_that_the_job_names(
    world: World, caplog: pytest.LogCaptureFixture, key_bits: int
) -> None:
    async with oracle_of(world, job_of(crypto={"key_bits": key_bits}), caplog) as oracle:
        await oracle.open_everywhere()
        assert oracle.cipher is not None
        assert oracle.cipher.key.bits == key_bits
