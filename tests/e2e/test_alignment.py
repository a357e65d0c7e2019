"""Aligning ids between real processes: shuffled rows, partial overlap, kept alignments, rules that differ."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from tests.e2e.conftest import three_parties
from tests.e2e.parties import Federation, assert_error, job, party
from tests.e2e.tables import COLUMNS, ROWS, write_csv

pytestmark = pytest.mark.e2e


def rows_of(path):
    with path.open() as file:
        _, *rows = csv.reader(file)
    return rows


def lost_zeros(folder, name):
    """Write a table of 120 six-digit ids, half of them with a zero in front, lost at party_a."""
    ids = [f"{number:06d}" for number in (*range(57_000, 57_060), *range(182_000, 182_060))]
    header = (*COLUMNS[name], "y") if name == "party_b" else COLUMNS[name]
    values = np.random.default_rng(5).normal(size=(120, len(header)))
    path = folder / f"{name}-numbers.csv"
    write_csv(path, header, [str(int(one)) for one in ids] if name == "party_a" else ids, values)
    return path


@pytest.fixture(scope="module")
def federation(start, tables, tmp_path_factory) -> Federation:
    """Return the usual parties and a second passive one; `mixed` is `patients` shuffled, with strangers."""
    folder = tmp_path_factory.mktemp("mixed")
    generator = np.random.default_rng(3)
    mixed = {}
    for at, (name, path) in enumerate(tables.items()):
        rows = [*rows_of(path), *([f"{name}-{number}", *["0.5"] * 4] for number in range(20 + at))]
        rows = [rows[position] for position in generator.permutation(len(rows))]
        header = (*COLUMNS[name], "y") if name == "party_b" else COLUMNS[name]
        mixed[name] = folder / f"{name}.csv"
        values = np.array([row[1 : len(header) + 1] for row in rows], dtype=float)
        write_csv(mixed[name], header, [row[0] for row in rows], values)
    coordinator, party_a, party_b = three_parties(tables)
    for settings, name in ((party_a, "party_a"), (party_b, "party_b")):
        settings["datasets"] |= {
            "mixed": {"source": {"csv": str(mixed[name])}},
            "numbers": {"source": {"csv": str(lost_zeros(folder, name))}},
            "folded": {
                "source": {"csv": str(mixed[name])},
                "id": {"case": "upper" if name == "party_b" else "keep"},
            },
        }
    party_a2 = party("party_a2", "passive", {"mixed": mixed["party_a2"]})
    return start(coordinator, party_a, party_a2, party_b)


def models(federation, config, job_id):
    names = (*config.passive, config.active)
    return [federation.model(name, job_id)["coefficients"] for name in names]


async def test_shuffled_rows_with_strangers_among_them_train_the_same_model(federation):
    plain, mixed = job(job="plain"), job(job="mixed", data={"dataset": "mixed"})
    job_id, report = await federation.run(plain)
    mixed_id, mixed_report = await federation.run(mixed)
    rows = mixed_report["rows"]
    assert (rows["party_a"], rows["party_b"], rows["aligned"]) == (ROWS + 20, ROWS + 22, ROWS)
    assert mixed_report["loss_history"] == pytest.approx(report["loss_history"], abs=1e-7)
    for one, other in zip(
        models(federation, plain, job_id), models(federation, mixed, mixed_id), strict=True
    ):
        assert one == pytest.approx(other, abs=1e-7)


async def test_three_parties_train_on_what_all_of_them_have(federation):
    config = job(job="three", passive=["party_a", "party_a2"], data={"dataset": "mixed"})
    _, report = await federation.run(config)
    assert report["rows"]["aligned"] == ROWS
    assert any("party_a and party_a2 64" in sentence for sentence in report["leaks"])


async def test_an_alignment_is_kept_for_the_next_job_on_the_same_ids(federation):
    config = job(job="kept", data={"dataset": "mixed"})
    _, first = await federation.run(config)
    job_id, again = await federation.run(config)
    assert any("had kept the alignment" in note for note in again["notes"])
    assert again["loss_history"] == first["loss_history"]
    # A party that has lost its own is asked for nothing that it does not have.
    for path in federation.state("party_a", job_id).parents[1].glob("alignments/*"):
        path.unlink()
    _, third = await federation.run(config)
    assert not any("had kept the alignment" in note for note in third["notes"])
    assert third["rows"]["aligned"] == ROWS


def test_ids_that_lost_their_zeros_are_noticed_although_enough_are_common(federation):
    config = job(job="zeros", data={"dataset": "numbers", "test_fraction": 0.0})
    # The second job uses the alignment of the first one, and says the same.
    for _ in range(2):
        done = federation.train(config)
        said = " ".join(done.stdout.split())
        assert done.returncode == 0, done.stderr
        assert "60 ids are common to all parties; there are 120 at party_a, 120 at party_b" in said
        assert "5 characters at party_a, 6 at party_b, those of party_a are shorter" in said
        assert "leading zeros: 0 % of the ids at party_a, 100 % at party_b: leading zeros lost" in said


async def test_what_was_said_about_ids_without_a_partner_is_among_the_leaks(federation):
    config = job(job="zeros", data={"dataset": "numbers", "test_fraction": 0.0})
    _, report = await federation.run(config)
    assert any("leading zeros lost" in note for note in report["notes"])
    assert any("those of party_a's ids look like that are not common" in leak for leak in report["leaks"])


async def test_strangers_on_both_sides_give_no_hint_where_ids_look_alike(federation):
    _, report = await federation.run(job(job="plain"))
    assert not any("without a partner" in note for note in report["notes"])
    assert not any("look like" in leak for leak in report["leaks"])


def test_rules_that_differ_are_shown_before_anything_is_aligned(federation):
    result = federation.train(job(data={"dataset": "folded"}))
    assert_error(
        result, 1, ["make ids by different rules", 'case: "upper" here, "keep" there', "datasets.folded.id"]
    )


def test_no_id_is_in_a_log(federation, tables):
    ids = {row[0] for row in rows_of(tables["party_a"])}
    logs = "".join(one.log for one in federation.parties.values())
    assert not [one for one in ids if f"'{one}'" in logs]
    assert "party_a-1" not in logs
