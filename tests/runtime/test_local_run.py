"""What `vfl local` and `vfl demo` do around a job: party files, failures, the comparison with pooled data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from sklearn.preprocessing import StandardScaler

from common.data.ids import IdRule
from common.data.reading import read_csv_table
from common.data.split import split_rows
from common.errors import JobError
from common.rpc.certs import create_ca, issue, show
from common.rpc.tls import EXPIRY_WARNING_DAYS
from common.runtime.cli.demo import comparison_table
from common.runtime.cli.init import example
from common.runtime.cli.local_parties import CERTIFICATE_DAYS, LocalParties
from common.runtime.cli.pooled import pooled_run
from common.runtime.config.local import LocalConfig, load_local
from common.runtime.config.party import load_party


@pytest.fixture
def config() -> LocalConfig:
    return load_local(example("demo.yaml"))


def test_a_local_partys_file_is_a_complete_party_file(config: LocalConfig, tmp_path: Path) -> None:
    awkward = tmp_path / "a ${HOME} 1e-3 folder"
    awkward.mkdir()
    parties = LocalParties(config, awkward, tmp_path)

    for party in config.parties:
        path = tmp_path / f"{party.party}.yaml"
        path.write_text(json.dumps(parties._party_file(party), ensure_ascii=False), encoding="utf-8")
        loaded = load_party(path)

        assert loaded.state == awkward / "state" / party.party
        assert loaded.datasets == party.datasets
        assert set(loaded.peers) == set(config.job.members) - {party.party}
        assert loaded.policy.peers == tuple(loaded.peers)
        assert loaded.security.tls is not None


def test_a_local_passive_party_agrees_to_the_other_passive_parties(
    config: LocalConfig, tmp_path: Path
) -> None:
    second = config.parties[1].model_copy(update={"party": "party_a2"})
    job = config.job.model_copy(update={"passive": (*config.job.passive, "party_a2")})
    parties = LocalParties(LocalConfig(parties=(*config.parties, second), job=job), tmp_path, tmp_path)

    for party in parties.config.parties:
        path = tmp_path / f"{party.party}.yaml"
        path.write_text(json.dumps(parties._party_file(party)), encoding="utf-8")
        assert set(load_party(path).policy.peers) == set(job.members) - {party.party}


async def test_a_service_that_does_not_start_is_named_with_the_end_of_its_log(
    config: LocalConfig, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    state.touch()
    broken = [
        party.model_copy(
            update={"state": state / "x", "compute": party.compute.model_copy(update={"workers": 0})}
        )
        for party in config.parties
    ]
    parties = LocalParties(config.model_copy(update={"parties": tuple(broken)}), tmp_path / "run", tmp_path)
    (tmp_path / "run").mkdir()

    with pytest.raises(JobError, match=r"coordinator's service ended with exit code 2") as caught:
        async with parties.started():
            pass

    assert "the state directory cannot be written" in caught.value.where
    assert parties.running == []


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such signal")
def test_services_end_when_the_command_that_started_them_is_killed() -> None:
    starter = (
        "import subprocess; from common.runtime.cli.local_parties import _ending_with_us\n"
        "with subprocess.Popen(['sleep', '600'], preexec_fn=_ending_with_us()): print('up', flush=True)"
    )
    process = subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.kill()
    # The pipe ends when the last process that holds it does.
    process.communicate(timeout=300)


def test_throw_away_certificates_need_no_warning_about_their_end(tmp_path: Path) -> None:
    create_ca(tmp_path, "x", CERTIFICATE_DAYS)
    issue(tmp_path, "party_a", days=CERTIFICATE_DAYS)
    assert show([tmp_path / "party_a.pem"])[0].days_left > EXPIRY_WARNING_DAYS


def descent_by_hand(rounds: int) -> tuple[list[float], np.ndarray[Any, Any]]:
    """The demo's job, written out once more: losses by round, weights of A, of B, the intercept."""
    tables = [read_csv_table(example(f"data/diabetes_{name}.csv"), "d", IdRule()) for name in "ab"]
    # Aligned rows stand in the order of the ids as text.
    tables = [table.take(np.argsort(np.array(table.ids))) for table in tables]
    y = tables[1].column("y")
    train, _ = split_rows(len(y), 0.3, 7)
    X = np.hstack([tables[0].values, tables[1].without("y").values])
    X = StandardScaler().fit(X[train]).transform(X)[train]
    X, y = np.column_stack([X, np.ones(len(train))]), y[train]
    penalty, weights, losses = np.append(np.full(10, 1e-3), 0.0), np.zeros(11), []
    for _ in range(rounds):
        d = X @ weights - y
        losses.append(float(d @ d / 2 / len(y) + penalty @ weights**2 / 2))
        weights = weights - 0.3 * (X.T @ d / len(y) + penalty * weights)
    return losses, weights


def report_of(losses: list[float], weights: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {
        "rounds": len(losses),
        "loss_history": losses,
        "model": {
            "party_a": {"coefficients": weights[:6].tolist(), "intercept": None},
            "party_b": {"coefficients": weights[6:10].tolist(), "intercept": float(weights[10])},
        },
        "metrics": {"train": {}, "test": {"r2": 0.5}},
        "lift": {"local": {"test": {"r2": 0.25}}},
        "reference_losses": {"party_b alone": 9.0},
    }


def test_a_lossless_run_differs_from_pooled_data_by_nothing(config: LocalConfig) -> None:
    pooled = pooled_run(config, report_of(*descent_by_hand(4)))

    assert pooled.loss_difference < 1e-9
    assert pooled.weight_difference < 1e-10
    assert pooled.metrics["r2"] > 0.2


def test_a_difference_from_pooled_data_is_seen(config: LocalConfig) -> None:
    losses, weights = descent_by_hand(4)
    losses[2] += 0.5
    weights[10] += 0.25

    pooled = pooled_run(config, report_of(losses, weights))

    assert pooled.loss_difference == pytest.approx(0.5)
    assert pooled.weight_difference == pytest.approx(0.25)


def test_the_demos_table_sets_federated_pooled_and_alone_side_by_side(config: LocalConfig) -> None:
    report = report_of(*descent_by_hand(2))
    pooled = pooled_run(config, report)
    console = Console(record=True, width=100)

    comparison_table(report, pooled).print(console)

    lines = [line.split() for line in console.export_text().splitlines()]
    assert lines[0] == ["federated", "pooled", "B", "alone"]
    loss = f"{pooled.losses[-1]:.6g}"
    assert lines[1][-3:] == [loss, loss, "9"]
    assert lines[2] == ["test", "R²", "0.5", f"{pooled.metrics['r2']:.6g}", "0.25"]
