"""`learning_rate: auto` in VFB² between processes: the grid is tried, and training begins with the best."""

from __future__ import annotations

import numpy as np
import pytest

from common.glm.step_size import GRID
from tests.e2e.vfb2_parties import four, job, parts, pooled, write_tables

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_tables(tmp_path_factory.mktemp("vfb2-steps"))


@pytest.fixture(scope="module")
def federation(start, files):
    return start(*four(files), circle=True)


@pytest.mark.parametrize(("update", "mode"), [("svrg", "async"), ("saga", "async"), ("svrg", "sync")])
async def test_a_step_size_of_the_grid_is_taken_and_leads_to_the_pooled_optimum(
    federation, files, update, mode
):
    config = job(train={"update": update, "mode": mode, "learning_rate": "auto", "epochs": 40})
    job_id, report = await federation.run(config)
    best, weights, _ = pooled(config, files)
    assert report["vfb2"]["learning_rate"] in GRID
    assert abs(report["loss_history"][-1] / best - 1) < 1e-4
    assert np.abs(parts(federation, config, job_id) - weights).max() < 0.1
    assert report["vfb2"]["same_updates_everywhere"]
    (said,) = (note for note in report["notes"] if "learning_rate: auto took" in note)
    assert all(f"{step:g} → " in said for step in GRID)
    # What was tried is no part of training, and of the histogram neither.
    most = sum(report["vfb2"]["updates"].values())
    assert all(sum(stale.values()) == most for stale in report["vfb2"]["staleness"].values())


@pytest.mark.parametrize("threads", [1, 2])
async def test_step_sizes_that_leave_all_bounds_are_given_up(federation, files, threads):
    """Columns in large units make the squared loss explode with all but the smallest steps."""
    train = {"loss": "squared", "learning_rate": "auto", "epochs": 3, "threads": threads}
    config = job(train=train, data={"standardize": False}, model={"l2": 20.0})
    _, report = await federation.run(config)
    (said,) = (note for note in report["notes"] if "learning_rate: auto took" in note)
    assert "0.5 → inf" in said
    assert report["vfb2"]["learning_rate"] < 0.5
    assert report["loss_history"][-1] < report["vfb2"]["objective_at_start"]
