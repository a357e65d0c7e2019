"""Configuration: everything wrong is reported at once, with path, line and a suggestion."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common.errors import ConfigError, RemoteProtocolError
from common.runtime.config.job import load_job
from common.runtime.config.job_kinds import job_from_json
from common.runtime.config.local import load_local
from common.runtime.config.party import PartyConfig, load_party, warn_of_missing_protection

Write = Callable[[str, str], Path]


def error_of(load: Callable[[Path], Any], path: Path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(path)
    return caught.value


def test_all_problems_of_a_party_file_are_reported_at_once_with_path_and_line(write: Write) -> None:
    path = write(
        "party.yaml",
        """
        party: Party A
        role: pasive
        listen: "7001"
        tls: {ca: ca.pem, cert: a.pem, ky: a.key}
        peers:
          party_b: null
          party_b: x:1
          coordinator: ${NOT_SET_ANYWHERE}
        state: state
        datasets:
          diabetes:
            source: {csv: a.csv}
            id: {colum: id, strip: 1}
        policy: {min_rows: 0, algorithms: [magic], min_key_bits: 1024}
        compute: {workers: many}
        deadlines: {call_s: .nan, peer_s: "30"}
        extra: 1
        """,
    )

    text = error_of(load_party, path).block()

    assert 'datasets.diabetes.id.colum: unknown key, did you mean "column"?' in text
    for line, dotted in [
        (1, "party"),
        (2, "role"),
        (3, "listen"),
        (4, "tls.ky"),
        (7, "peers.party_b"),
        (8, "peers.coordinator"),
        (13, "datasets.diabetes.id.colum"),
        (13, "datasets.diabetes.id.strip"),
        (14, "policy.min_rows"),
        (14, "policy.algorithms[0]"),
        (14, "policy.min_key_bits"),
        (15, "compute.workers"),
        (16, "deadlines.call_s"),
        (16, "deadlines.peer_s"),
        (17, "extra"),
    ]:
        expected = path.parent / f"party.yaml:{line}"
        found = [row for row in text.splitlines() if f" {dotted}: " in row]
        assert found, dotted
        assert str(expected) in found[0]


def test_a_single_problem_is_one_block_with_file_and_line(write: Write, party_text: str) -> None:
    path = write("party.yaml", party_text + "policy: {min_row: 5}\n")

    error = error_of(load_party, path)

    assert error.what == 'policy.min_row: unknown key, did you mean "min_rows"?'
    assert error.where == f"{path}:7"
    assert error.exit_code == 2


def test_values_do_not_appear_in_errors(
    write: Write, party_text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2")
    path = write("party.yaml", party_text + "compute: {workers: '${DATABASE_PASSWORD}'}\n")

    assert "hunter2" not in error_of(load_party, path).block()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("insecure: true", "contradicts the certificates"),
        ("peers: {party_a: x:1}", "is this party itself"),
        ("policy: {peers: [nobody]}", '"nobody" is not among peers'),
        ("listen: 0.0.0.0:99999", "should be an address"),
        ("listen: nothing", "should be an address"),
        ("role: coordinator\ndatasets: {d: {source: {csv: x}}}", "a coordinator holds no data"),
        ("datasets: {d: {source: {csv: x}, features: [a, a]}}", 'names the column "a" more than once'),
        ("datasets: {d: {source: {csv: x}, features: [id]}}", "is the id column"),
        ("tls: {ca: x, cert: y}", "tls.key: is missing"),
        ("tls: {ca: x, cert: y, key: z, insecure: true}", "contradicts `insecure: true`"),
        ("tls: null", "tls: is missing"),
        ("insecure: true\ntls: null\nlisten: 0.0.0.0:1", "127.0.0.1 or ::1 only"),
        ("insecure: true\ntls: null\npeers: {party_b: host:1}", "peers.party_b"),
        ("policy: {min_key_bits: 2047}", "protect nothing"),
    ],
)
def test_rules_between_fields_of_a_party_file(
    write: Write, party_text: str, change: str, message: str
) -> None:
    changed = {line.split(":")[0] for line in change.splitlines()}
    kept = [line for line in party_text.strip().splitlines() if line.split(":")[0] not in changed]

    error = error_of(load_party, write("party.yaml", "\n".join([*kept, change, ""])))

    assert message in error.block()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("train: {tolerance: 1e-6, loss_every: 0}", "needs the loss"),
        ("train: {batch_size: 0}", "train.batch_size"),
        ("train: {learning_rate: fast}", "'auto' or should be a number"),
        ("train: {learning_rate: 0}", "greater than 0"),
        ("train: {max_rounds: 2.5}", "should be a whole number"),
        ("train: {seed: -1}", "train.seed"),
        ("data: {dataset: d, label: y, test_fraction: 1}", "should be less than 1"),
        ("data: {dataset: d, label: y, test_fraction: -0.1}", "data.test_fraction"),
        ("data: {label: y}", "data.dataset: is missing"),
        ("model: {l2: -1}", "model.l2"),
        ("crypto: {precision_bits: 61}", "crypto.precision_bits"),
        ("crypto: {precision_bits: 7}", "crypto.precision_bits"),
        ("crypto: {key_bits: 1024}", "protect nothing"),
        ("crypto: {backend: rsa}", "should be 'gmpy2' or 'phe'"),
        ("crypto: {noise: none}", "should be 'proven' or 'short'"),
        ("crypto: {noise: short, backend: phe}", "must be proven with backend: phe"),
        ("coordinator: party_a", '"party_a" already has another part'),
        ("passive: [party_b]", '"party_b" already has another part'),
        ("passive: []", "passive"),
        ("algorithm: magic", "should be 'he_linear'"),
        ("job: ../../etc", "should be a name"),
    ],
)
def test_rules_of_a_job_file(write: Write, job_text: str, change: str, message: str) -> None:
    kept = [line for line in job_text.strip().splitlines() if line.split(":")[0] != change.split(":")[0]]

    error = error_of(load_job, write("job.yaml", "\n".join([*kept, change, ""])))

    assert message in error.block()


def test_small_keys_are_accepted_with_a_loud_warning_under_the_test_switch(
    write: Write, party_text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("VFL_UNSAFE_TEST_KEYS", "1")

    config = load_party(write("party.yaml", party_text + "policy: {min_key_bits: 512}\n"))

    warn_of_missing_protection(config)

    assert config.policy.min_key_bits == 512
    assert "FOR TESTS ONLY" in caplog.text


@pytest.mark.parametrize("setting", ["insecure: true", "tls: {insecure: true}"])
def test_both_ways_of_saying_insecure_work_on_loopback_and_shout(
    write: Write, party_text: str, setting: str, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [line for line in party_text.strip().splitlines() if not line.startswith("tls")]

    config = load_party(write("party.yaml", "\n".join([*lines, setting, ""])))

    warn_of_missing_protection(config)

    assert config.is_insecure
    assert config.security.tls is None
    assert "No TLS" in caplog.text


def test_paths_are_relative_to_the_file_that_names_them(
    write: Write, party_text: str, tmp_path: Path
) -> None:
    config = load_party(write("party.yaml", party_text + "datasets: {d: {source: {csv: ../x.csv}}}\n"))

    assert config.state == tmp_path / "state/party_a"
    assert config.security.tls is not None
    assert config.security.tls.ca == tmp_path / "certs/ca.pem"
    assert config.datasets["d"].source.csv == tmp_path.parent / "x.csv"


def test_the_policy_allows_all_peers_unless_it_names_some_or_none(write: Write, party_text: str) -> None:
    def allowed(text: str) -> tuple[str, ...]:
        return load_party(write("party.yaml", party_text + text)).policy.peers

    assert allowed("") == ("party_b", "coordinator")
    assert allowed("policy: {min_rows: 5}\n") == ("party_b", "coordinator")
    assert allowed("policy: {peers: [party_b]}\n") == ("party_b",)
    assert allowed("policy: {peers: []}\n") == ()


@pytest.mark.parametrize(
    ("listen", "advertise", "dialled"),
    [
        ("0.0.0.0:7002", None, "127.0.0.1:7002"),
        ('"[::]:7002"', None, "[::1]:7002"),
        ("10.0.0.1:7002", None, "10.0.0.1:7002"),
        ("0.0.0.0:7002", "party-b:9", "party-b:9"),
    ],
)
def test_the_operator_dials_what_is_advertised_or_a_local_address(
    write: Write, party_text: str, listen: str, advertise: str | None, dialled: str
) -> None:
    text = party_text.replace("listen: 127.0.0.1:7001", f"listen: {listen}")
    text += f"advertise: {advertise}\n" if advertise else ""

    assert load_party(write("party.yaml", text)).dial_address == dialled


def test_a_job_survives_its_canonical_json_and_keeps_its_digest(write: Write, job_text: str) -> None:
    job = load_job(write("job.yaml", job_text + "train: {learning_rate: 1, tolerance: 1e-6}\n"))

    again = job_from_json(job.canonical_json())

    assert again == job
    assert again.digest() == job.digest()
    assert job.members == ("party_b", "party_a", "coordinator")
    assert [job.role_of(name) for name in (*job.members, "x")] == ["active", "passive", "coordinator", None]


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", b"[]", b"null", b"\xff", b'{"job": 1}', b"[" * 5000, b'{"job":"x"}' + b" " * 70_000],
)
def test_a_damaged_job_from_another_party_is_a_protocol_error(text: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        job_from_json(text)


def test_a_job_in_another_spelling_is_refused(write: Write, job_text: str) -> None:
    job = load_job(write("job.yaml", job_text))

    with pytest.raises(RemoteProtocolError, match="canonical"):
        job_from_json(job.canonical_json() + b"\n")


def test_an_unknown_key_from_another_version_is_named(write: Write, job_text: str) -> None:
    text = load_job(write("job.yaml", job_text)).canonical_json()

    with pytest.raises(RemoteProtocolError, match="newkey: unknown key"):
        job_from_json(text.replace(b'{"active"', b'{"newkey":1,"active"', 1))


def test_a_peers_job_with_a_small_key_is_refused_outside_tests(write: Write, job_text: str) -> None:
    text = load_job(write("job.yaml", job_text)).canonical_json()

    with pytest.raises(RemoteProtocolError, match="protect nothing"):
        job_from_json(text.replace(b'"key_bits":2048', b'"key_bits":512'))


def test_a_local_file_names_parties_that_do_not_fit_its_job(write: Write) -> None:
    path = write(
        "local.yaml",
        """
        parties:
          - {party: coordinator, role: coordinator}
          - {party: party_a, role: active, datasets: {d: {sourc: {csv: x}}}}
          - {party: party_c, role: passive}
        job:
          job: j
          active: party_b
          passive: [party_a]
          coordinator: coordinator
          data: {dataset: d, label: y}
        """,
    )
    assert (
        'parties[1].datasets.d.sourc: unknown key, did you mean "source"?'
        in error_of(load_local, path).block()
    )

    path.write_text(path.read_text().replace("sourc:", "source:"))
    text = error_of(load_local, path).block()
    assert 'should be passive: the job names "party_a" as that' in text
    assert '"party_c" has no part in the job' in text
    assert 'names "party_b", which is not among parties' in text


def test_configurations_cannot_be_changed(write: Write, party_text: str) -> None:
    config: PartyConfig = load_party(write("party.yaml", party_text))

    with pytest.raises(ValueError, match="frozen"):
        config.party = "other"  # type: ignore[misc]


def test_a_list_with_wrong_items_is_not_called_too_short(write: Callable[[str, str], Path]) -> None:
    parties = "".join(f"  - {{party: {name}, role: {name}}}\n" for name in ("active", "passive", "nobody"))
    path = write("local.yaml", f"parties:\n{parties}job: {{}}\n")
    with pytest.raises(ConfigError) as caught:
        load_local(path)
    assert "parties[2].role" in str(caught.value)
    assert "at least 3 items" not in str(caught.value)
