"""A real Dask cluster of two processes as a party's executor: the same bits as in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("distributed", reason="the extra [dask] is not installed")
from distributed import LocalCluster

from common.crypto.cipher import PaillierCipher
from common.crypto.entropy import SeededEntropy, SystemEntropy
from common.crypto.private_key import PrivateKey
from common.errors import ConfigError
from common.runtime.compute import InProcessExecutor, open_executor
from common.runtime.compute_dask import DaskExecutor
from common.runtime.config.party import load_party

KEY_BITS = 512


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two worker processes and a scheduler on a free port."""
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        scheduler_port=0,
        dashboard_address=None,
        host="127.0.0.1",
    ) as cluster:
        yield cluster


@pytest.fixture
def executor(cluster: LocalCluster) -> Iterator[DaskExecutor]:
    """The cluster as a party sees it."""
    with DaskExecutor(cluster.scheduler_address) as executor:
        yield executor


def results(executor: object, key: PrivateKey) -> list[bytes]:
    """Return everything that leaves a cipher, on the wire's bytes."""
    cipher = PaillierCipher(key.public, executor, SeededEntropy(b"the same everywhere"))  # type: ignore[arg-type]
    plain = list(range(-100, 200))
    sealed = cipher.encrypt(plain)
    again = cipher.seal(sealed.opened(), plain)
    matrix = np.random.default_rng(4).integers(-(2**40), 2**40, (300, 5))
    product = cipher.transposed_product(matrix, sealed.opened())
    return [sealed.to_bytes(), again.to_bytes(), cipher.seal(product, [0] * 5).to_bytes()]


def test_a_cluster_gives_the_same_bits_as_this_process_and_as_a_pool(executor: DaskExecutor) -> None:
    key = PrivateKey.generate(KEY_BITS, SystemEntropy())
    here = results(InProcessExecutor(), key)
    with open_executor(2) as pool:
        assert results(pool, key) == here
    assert results(executor, key) == here


def test_both_workers_of_the_cluster_take_part(executor: DaskExecutor) -> None:
    assert executor.workers == 2
    at = [executor.submit(_worker_name, number) for number in range(40)]
    assert len({future.result() for future in at}) == 2


def _worker_name(number: int) -> str:
    from distributed import get_worker

    return str(get_worker().name)


def test_an_error_on_the_cluster_reaches_the_one_who_asks(executor: DaskExecutor) -> None:
    with pytest.raises(ZeroDivisionError):
        executor.submit(divmod, 1, 0).result()


def test_leaving_a_cluster_leaves_it_running(cluster: LocalCluster) -> None:
    for _ in range(2):
        with DaskExecutor(cluster.scheduler_address) as executor:
            assert executor.submit(pow, 2, 10).result() == 1024
        executor.shutdown()


def test_a_scheduler_that_does_not_answer_is_a_configuration_error(
    unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.runtime.compute_dask.CONNECT_S", 0.3)
    with pytest.raises(ConfigError, match="no Dask scheduler answers"):
        DaskExecutor(f"tcp://127.0.0.1:{unused_tcp_port}")


def party_file(folder: Path, compute: str) -> Path:
    path = folder / "party.yaml"
    path.write_text(
        "party: party_a\nrole: passive\nlisten: 127.0.0.1:0\ninsecure: true\npeers: {}\nstate: state\n"
        f"compute: {compute}\n"
    )
    return path


@pytest.mark.parametrize("address", ["10.0.0.1:8786", "http://host:8786", "tcp://host", "tcp://host:x", ""])
def test_addresses_that_are_not_a_scheduler_s_are_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_party(party_file(tmp_path, f"{{dask: '{address}'}}"))
    assert "compute.dask: should be a scheduler's address" in caught.value.block()


def test_workers_and_a_cluster_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_party(party_file(tmp_path, "{dask: 'tcp://127.0.0.1:8786', workers: 2}"))
    assert "compute.workers: contradicts" in caught.value.block()


def test_a_party_file_may_name_a_cluster(tmp_path: Path) -> None:
    config = load_party(party_file(tmp_path, "{dask: 'tls://cluster.example:8786'}"))
    assert config.compute.dask == "tls://cluster.example:8786"
