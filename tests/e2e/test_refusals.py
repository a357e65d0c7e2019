"""Who says no, to what, in which words and with which exit code; the services then run the next job."""

from __future__ import annotations

import csv

import pytest

from tests.e2e.conftest import three_parties
from tests.e2e.parties import Federation, assert_error, job, party

pytestmark = pytest.mark.e2e

# What each data set is called, and what becomes of party_a's rows (the header not among them).
SPOILT = {
    "strangers": lambda rows: [["x" + row[0], *row[1:]] for row in rows],
    "few": lambda rows: rows[:15],
    "holes": lambda rows: [*rows[:4], [*rows[4][:2], "nan", *rows[4][3:]], *rows[5:]],
    "twice": lambda rows: [*rows[:-1], rows[0]],
}


@pytest.fixture(scope="module")
def federation(start, tables, tmp_path_factory) -> Federation:
    """Return the usual parties with data of many kinds, and two that agree to little."""
    folder = tmp_path_factory.mktemp("spoilt")
    with tables["party_a"].open() as file:
        header, *rows = csv.reader(file)
    at_a = {"patients": tables["party_a"]} | {name: folder / f"{name}.csv" for name in SPOILT}
    for name, spoil in SPOILT.items():
        at_a[name].write_text("".join(",".join(row) + "\n" for row in [header, *spoil(rows)]))
    unlabelled = folder / "unlabelled.csv"
    unlabelled.write_text(tables["party_b"].read_text().replace("visits,y", "visits,result"))
    at_b = dict.fromkeys((*at_a, "private"), tables["party_b"]) | {"unlabelled": unlabelled}
    coordinator, *_ = three_parties(tables)
    strict = {"min_rows": 1000, "min_key_bits": 512}
    return start(
        coordinator,
        party("strict_c", "coordinator", policy=strict | {"peers": ["party_b", "strict_a"]}),
        party("party_a", "passive", at_a | {"unlabelled": tables["party_a"]}),
        party(
            "strict_a",
            "passive",
            {"patients": tables["party_a"]},
            policy=strict | {"peers": ["party_b", "coordinator"]},
        ),
        party("party_b", "active", at_b),
    )


STRONG = {"key_bits": 512}
BY_POLICY = {
    "few rows at A": ({"passive": ["strict_a"], "crypto": STRONG}, ["strict_a", "1000 rows", "has 64"]),
    "small key at A": ({"passive": ["strict_a"]}, ["strict_a", "512 bits", "256", "crypto.key_bits"]),
    "unwanted peer at A": (
        {"passive": ["strict_a"], "coordinator": "strict_c", "crypto": STRONG},
        ["strict_a", "does not allow jobs with strict_c"],
    ),
    "short noise at A": (
        {"crypto": {"noise": "short"}},
        ["does not allow crypto.noise: short", "policy.noise"],
    ),
    "small key at C": ({"coordinator": "strict_c"}, ["strict_c", "512 bits", "256"]),
    "unwanted peer at C": (
        {"coordinator": "strict_c", "crypto": STRONG},
        ["strict_c", "does not allow jobs with party_a"],
    ),
}
BY_DATA = {
    "other ids": (
        {"dataset": "strangers"},
        1,
        ["no id is common", "50 are needed", "5 characters at party_a, 4 at party_b", "digits: 0 %"],
    ),
    "few rows": ({"dataset": "few"}, 3, ["party_a", "20 rows at least", "has 15"]),
    "not a number": ({"dataset": "holes"}, 1, ["party_a", "1 cell", "'bmi'", "row 5"]),
    "an id twice": ({"dataset": "twice"}, 1, ["party_a", "an id comes again", "row 64"]),
    "unknown at A": ({"dataset": "private"}, 3, ["party_a", "no data set called 'private'"]),
    "unknown at B": ({"dataset": "nowhere"}, 2, ['no data set "nowhere"', "patients"]),
    "no label": ({"dataset": "unlabelled"}, 1, ["no column 'y'", "header", "'result'"]),
    "hardly any training rows": ({"test_fraction": 0.8}, 1, ["at least 16 rows", "party_a has 3 columns"]),
}


@pytest.mark.parametrize(("changes", "words"), BY_POLICY.values(), ids=BY_POLICY.keys())
def test_a_policy_refuses_with_its_reason(federation, changes, words):
    assert_error(federation.train(job(**changes)), 3, words)
    assert federation.all_run()


@pytest.mark.parametrize(("data", "exit_code", "words"), BY_DATA.values(), ids=BY_DATA.keys())
def test_data_that_do_not_fit_are_refused_with_the_place(federation, data, exit_code, words):
    result = federation.train(job(data=data))
    assert_error(result, exit_code, words)
    assert federation.all_run()


def test_no_cell_and_no_id_stands_in_a_refusal(federation, tables):
    with tables["party_a"].open() as file:
        cells = {cell for row in list(csv.reader(file))[1:] for cell in row}
    for dataset in ("holes", "twice", "strangers"):
        result = federation.train(job(data={"dataset": dataset}))
        logs = "".join(one.log for one in federation.parties.values())
        assert not [cell for cell in cells if f"'{cell}'" in result.stderr or f"'{cell}'" in logs]


def test_batches_that_would_reveal_residuals_are_refused(federation):
    result = federation.train(job(train={"batch_size": 8}))
    assert_error(result, 1, ["at least 16 rows", "party_a has 3 columns", "train.batch_size"])


@pytest.mark.parametrize("refusing", ["party_a", "coordinator"])
def test_an_algorithm_that_a_policy_does_not_name_is_refused(federation, refusing):
    allowed = federation[refusing].settings["policy"]
    federation[refusing].restart(policy={**allowed, "algorithms": []})
    result = federation.train(job())
    assert_error(result, 3, [refusing, "does not allow the algorithm he_linear"])
    federation[refusing].restart(policy={**allowed, "algorithms": ["he_linear"]})
    assert federation.train(job()).returncode == 0


def test_a_job_of_another_active_party_is_not_even_submitted(federation):
    result = federation.train(job(active="party_x"))
    assert_error(result, 2, ["active party is party_x", "party_b's"])


def test_a_party_whose_service_is_down_is_named(federation):
    federation["strict_a"].kill()
    result = federation.train(job(passive=["strict_a"], crypto=STRONG))
    assert_error(result, 3, ["strict_a cannot be reached", federation["strict_a"].address])


async def test_after_all_refusals_the_next_job_runs(federation):
    _, report = await federation.run(job(job="after-all"))
    assert report["rounds"] == 4
