"""docker-compose.yml: what each container may see, and that one party can run without the others."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from common.runtime.config.job import load_job
from common.runtime.config.party import load_party

ROOT = Path(__file__).resolve().parents[2]
PARTIES = ("party_a", "party_b", "coordinator")
INTERPOLATION = re.compile(r"\$\{\w+:-([^}]*)\}")


def with_defaults(text: str) -> str:
    """Return compose's text as it reads when the environment sets nothing."""
    return INTERPOLATION.sub(r"\1", text)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded = yaml.safe_load(with_defaults((ROOT / "docker-compose.yml").read_text(encoding="utf-8")))
    assert isinstance(loaded, dict)
    return loaded


def mounts(service: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return source and mode of a service's mounts by target."""
    found = {}
    for volume in service["volumes"]:
        source, target, *mode = volume.split(":")
        found[target] = (source, mode[0] if mode else "rw")
    return found


@pytest.mark.parametrize("party", PARTIES)
def test_a_party_starts_without_any_other_service(compose: dict[str, Any], party: str) -> None:
    service = compose["services"][party]
    assert not {"depends_on", "links", "volumes_from", "extends", "profiles"} & set(service)


@pytest.mark.parametrize("party", PARTIES)
def test_a_party_sees_nothing_of_another_party(compose: dict[str, Any], party: str) -> None:
    others = {other for other in PARTIES if other != party} | {"diabetes_a", "diabetes_b"}
    others -= {"diabetes_" + party[-1]}
    for target, (source, _) in mounts(compose["services"][party]).items():
        assert not [other for other in others if other in source or other in target]


def test_no_volume_is_shared_between_parties(compose: dict[str, Any]) -> None:
    sources = [source for party in PARTIES for source, _ in mounts(compose["services"][party]).values()]
    assert len(sources) == len(set(sources))


@pytest.mark.parametrize("party", PARTIES)
def test_a_party_can_write_nothing_but_its_state(compose: dict[str, Any], party: str) -> None:
    service = compose["services"][party]
    writable = [target for target, (_, mode) in mounts(service).items() if mode != "ro"]
    assert writable == ["/var/lib/colonnade"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "user" not in service, "the image's own user is not root"


@pytest.mark.parametrize("party", PARTIES)
def test_by_default_only_this_machine_reaches_a_published_port(compose: dict[str, Any], party: str) -> None:
    port = load_party(ROOT / "configs" / "docker" / f"{party}.yaml").listen.rpartition(":")[2]
    assert compose["services"][party]["ports"] == [f"127.0.0.1:{port}:{port}"]


@pytest.mark.parametrize("party", PARTIES)
def test_the_party_file_names_only_paths_that_are_mounted(compose: dict[str, Any], party: str) -> None:
    config = load_party(ROOT / "configs" / "docker" / f"{party}.yaml")
    targets = [Path(target) for target in mounts(compose["services"][party])]
    assert config.party == party
    assert config.tls is not None
    named = [config.tls.ca, config.tls.cert, config.tls.key, config.state]
    named += [dataset.source.csv for dataset in config.datasets.values()]
    for path in named:
        assert path is not None
        assert any(path.is_relative_to(target) for target in targets), path


def test_peers_are_dialled_by_the_names_of_their_services(compose: dict[str, Any]) -> None:
    configs = {party: load_party(ROOT / "configs" / "docker" / f"{party}.yaml") for party in PARTIES}
    for config in configs.values():
        for peer, address in config.peers.items():
            assert address in (None, configs[peer].advertise)
            assert configs[peer].advertise == f"{peer}:{configs[peer].listen.rpartition(':')[2]}"
    assert set(PARTIES) <= set(compose["services"])


def test_the_demo_waits_for_certificates_and_for_three_healthy_parties(compose: dict[str, Any]) -> None:
    waits = {name: how["condition"] for name, how in compose["services"]["demo"]["depends_on"].items()}
    assert waits == {
        "certificates": "service_completed_successfully",
        **dict.fromkeys(PARTIES, "service_healthy"),
    }


def test_the_demo_job_fits_the_party_files(compose: dict[str, Any]) -> None:
    source, _ = mounts(compose["services"]["demo"])["/demo/job.yaml"]
    job = load_job(ROOT / source)
    assert set(job.members) == set(PARTIES)
    for party in PARTIES:
        config = load_party(ROOT / "configs" / "docker" / f"{party}.yaml")
        assert config.role == job.role_of(party)
        assert job.algorithm in config.policy.algorithms
        assert job.crypto.key_bits >= config.policy.min_key_bits
        assert config.role == "coordinator" or job.data.dataset in config.datasets


def test_every_file_that_is_mounted_exists(compose: dict[str, Any]) -> None:
    declared = set(compose["volumes"])
    used = set()
    for service in compose["services"].values():
        for source, _ in mounts(service).values():
            if source.startswith("./"):
                # ./out is made by the run.
                assert source == "./out" or (ROOT / source).is_file(), source
            else:
                used.add(source)
    assert used == declared


def test_compose_itself_accepts_the_file() -> None:
    client = compose_client()
    if client is None:
        pytest.skip("no compose client on this machine")
    arguments = [*client, "--file", str(ROOT / "docker-compose.yml"), "config"]
    checked = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=60)
    assert checked.returncode == 0, checked.stderr


def compose_client() -> list[str] | None:
    """Return the command of compose's plugin or of its older program; neither needs a daemon for this."""
    docker, older = shutil.which("docker"), shutil.which("docker-compose")
    if docker is not None:
        plugin = [docker, "compose"]
        if subprocess.run([*plugin, "version"], capture_output=True, check=False, timeout=60).returncode == 0:
            return plugin
    return None if older is None else [older]
