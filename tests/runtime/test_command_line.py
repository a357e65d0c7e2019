"""The command `vfl`: exit codes, one block for every error, and the files that `init` and `certs` make."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from common.runtime.cli.init import EXAMPLES
from common.runtime.config.job import load_job
from common.runtime.config.party import load_party

PARTIES = ("party_a", "party_b", "coordinator")


def vfl(*arguments: str | Path, where: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-P",
        "-c",
        "from common.runtime.cli.app import main; main()",
        *map(str, arguments),
    ]
    return subprocess.run(command, cwd=where, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `vfl init` and `vfl certs init` leave behind, with ports at which nobody listens."""
    path = tmp_path_factory.mktemp("init") / "work"
    assert vfl("init", path).returncode == 0
    assert vfl("certs", "init", path / "certs").returncode == 0
    move_to_free_ports(path)
    return path


def move_to_free_ports(path: Path) -> None:
    """Have the parties of `vfl init` listen where nobody else on this machine does."""
    ports = dict(zip(("7001", "7002", "7003"), free_ports(3), strict=True))
    for name in PARTIES:
        text = (path / f"{name}.yaml").read_text()
        (path / f"{name}.yaml").write_text(re.sub("700[123]", lambda match: ports[match[0]], text))


def free_ports(count: int) -> list[str]:
    """Return ports that were free a moment ago."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def test_init_and_certs_leave_files_that_load_and_fit_together(folder: Path) -> None:
    for name in PARTIES:
        config = load_party(folder / f"{name}.yaml")
        config.security.verify(name, config.listen)
        assert all(dataset.source.csv.is_file() for dataset in config.datasets.values())
    job = load_job(folder / "job.yaml")
    assert set(job.members) == set(PARTIES)


def test_init_says_what_to_type_next_and_does_not_overwrite(folder: Path) -> None:
    (folder / "job.yaml").touch()
    done = vfl("init", folder)

    assert done.returncode == 2
    assert "is not overwritten" in done.stderr


def test_init_prints_the_commands_that_follow(tmp_path: Path) -> None:
    done = vfl("init", tmp_path / "new")

    assert done.returncode == 0
    assert {str(path.relative_to(tmp_path / "new")) for path in (tmp_path / "new").rglob("*.*")} == set(
        EXAMPLES["he_linear"].files
    )
    for command in ("vfl certs init", "vfl serve -c party_a.yaml", "vfl train -c job.yaml -p party_b.yaml"):
        assert command in done.stdout


def test_certs_show_says_who_and_until_when(folder: Path) -> None:
    done = vfl("certs", "show", folder / "certs")

    assert done.returncode == 0
    for name in PARTIES:
        assert re.search(rf"{name}\.pem +{name} .*UTC +396", done.stdout), done.stdout


def test_certs_are_not_replaced_unless_asked(folder: Path, tmp_path: Path) -> None:
    assert vfl("certs", "ca", tmp_path / "certs").returncode == 0
    assert vfl("certs", "issue", tmp_path / "certs", "--party", "party_a").returncode == 0

    again = vfl("certs", "issue", tmp_path / "certs", "--party", "party_a")
    replaced = vfl("certs", "issue", tmp_path / "certs", "--party", "party_a", "--replace")

    assert again.returncode == 2
    assert "error:" in again.stderr
    assert replaced.returncode == 0


def test_check_passes_what_is_right_and_fails_for_peers_that_are_not_there(folder: Path) -> None:
    done = vfl("check", "-c", folder / "job.yaml", "-c", folder / "party_a.yaml")

    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert any(re.match(r"ok +party_a +data diabetes +442 rows, 6 columns", line) for line in lines)
    assert any(re.match(r"ok +party_a +certificate +is for party_a, valid until", line) for line in lines)
    job_data = r"ok +party_a +job data +up to 309 training rows, 133 test rows"
    assert any(re.match(job_data, line) for line in lines)
    assert any(re.match(r"FAIL +coordinator +port", line) for line in lines), done.stdout
    assert any(re.match(r" +do: +start the peer's service", line) for line in lines)


def test_check_says_once_how_certificates_are_made_when_there_are_none(tmp_path: Path) -> None:
    work = tmp_path / "work"
    assert vfl("init", work).returncode == 0
    move_to_free_ports(work)
    done = vfl("check", "-c", work / "party_b.yaml", "-c", work / "job.yaml")
    assert done.returncode == 1
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    assert len(failed) == 1
    assert "ca.pem, party_b.pem, party_b.key" in failed[0]
    advice = next(line for line in done.stdout.splitlines() if " do: " in line)
    command = advice.split("for a trial: vfl ")[1].split(";")[0].split()
    assert vfl(*command).returncode == 0
    assert "certificates not there" not in vfl("check", "-c", work / "party_b.yaml").stdout


def test_check_takes_a_label_of_text_when_the_job_says_which_column_it_is(tmp_path: Path) -> None:
    work = tmp_path / "work"
    assert vfl("init", work, "--algorithm", "he_logistic").returncode == 0
    (rows,) = (work / "data").glob("*_b.csv")
    head, *lines = rows.read_text().splitlines()
    texts = [f"{line},{'yes' if at % 2 else 'no'}" for at, line in enumerate(lines)]
    rows.write_text("\n".join([f"{head},bought", *texts]) + "\n")
    job = work / "job.yaml"
    job.write_text(re.sub(r"label: \w+", "label: bought\n  positive: yes", job.read_text()))

    without = vfl("check", "-c", work / "party_b.yaml").stdout
    assert re.search(r"FAIL +party_b +data ", without)
    assert "check with the job file, too" in without
    told = vfl("check", "-c", work / "party_b.yaml", "-c", job).stdout
    assert re.search(r"ok +party_b +data ", told), told


def test_an_estimate_says_what_it_takes_for_granted(tmp_path: Path) -> None:
    work = tmp_path / "work"
    assert vfl("init", work).returncode == 0
    files = ("-c", work / "job.yaml", "-p", work / "party_b.yaml")
    told = vfl("estimate", *files).stdout
    assert "party_a 5 (assumed)" in told
    assert "as many columns at party_a as here" in told
    assert "assumed" not in vfl("estimate", *files, "--columns", "party_a=6").stdout


def test_check_names_a_readable_key_a_missing_file_and_a_foreign_certificate(
    folder: Path, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    assert vfl("init", work).returncode == 0
    assert vfl("certs", "init", work / "certs").returncode == 0
    (work / "certs" / "party_a.key").chmod(0o644)
    (work / "data" / "diabetes_a.csv").unlink()
    (work / "certs" / "party_a.pem").write_bytes((folder / "certs" / "party_b.pem").read_bytes())

    out = vfl("check", "-c", work / "party_a.yaml").stdout

    assert re.search(r"FAIL +party_a +private key .*0644", out)
    assert re.search(r"FAIL +party_a +data diabetes", out)
    assert re.search(r"FAIL +party_a +certificate +the certificate is for party_b", out)
    assert not (work / "state").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bogus",), "No such command"),
        (("train",), "Missing option"),
        (("serve", "-c", "absent.yaml"), "no such file"),
        (("check", "-c", "job.yaml"), "one party file"),
        (("check", "-c", "party_a.yaml", "-c", "party_b.yaml"), "one party file"),
        (
            ("train", "-c", "party_a.yaml", "-p", "party_b.yaml"),
            "this is a party file, where a job file is expected",
        ),
        (("train", "-c", "job.yaml", "-p", "party_a.yaml"), "the job's active party is party_b"),
        (("train", "-c", "job.yaml", "-p", "party_b.yaml", "--out", "job.yaml"), "the folder cannot be made"),
        (("jobs", "-p", "party_a.yaml"), "jobs are run by the active party"),
        (("local", "-c", "job.yaml"), "where a file for `vfl local` is expected"),
        (("certs", "issue", "certs", "--party", "../x"), "cannot be a party's name"),
        (("certs", "init", "new", "--party", "a", "--party", "a"), "given twice"),
    ],
)
def test_usage_and_configuration_errors_end_with_2_and_start_nothing(
    folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = vfl(*arguments, where=folder)

    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_second_job_file_that_is_wrong_is_reported_with_file_and_line(folder: Path) -> None:
    wrong = folder / "wrong.yaml"
    wrong.write_text((folder / "job.yaml").read_text().replace("max_rounds: 25", "max_rounds: many"))

    done = vfl("train", "-c", wrong, "-p", folder / "party_b.yaml")

    assert done.returncode == 2
    assert re.search(r"train\.max_rounds: should be a whole number\n  where: .*wrong\.yaml:\d+", done.stderr)


def test_a_service_that_is_not_there_ends_with_3_and_its_address(folder: Path) -> None:
    done = vfl("train", "-c", "job.yaml", "-p", "party_b.yaml", where=folder)

    assert done.returncode == 3
    assert f"party_b at {load_party(folder / 'party_b.yaml').listen}" in done.stderr
    assert done.stderr.startswith("error: ")


def test_the_version_is_printed() -> None:
    done = vfl("--version")

    assert done.returncode == 0
    assert re.fullmatch(r"colonnade \d+\.\d+\.\d+\S*\n", done.stdout)


def test_help_names_every_command() -> None:
    out = vfl("--help").stdout

    for command in ("serve", "check", "train", "jobs", "show", "cancel", "local", "certs", "init", "demo"):
        assert re.search(rf"^  {command} ", out, re.MULTILINE)


def test_serve_refuses_a_wrong_file_before_it_listens(folder: Path) -> None:
    wrong = folder / "wrong_party.yaml"
    wrong.write_text((folder / "party_a.yaml").read_text().replace("role: passive", "role: passiv"))

    done = vfl("serve", "-c", wrong)

    assert done.returncode == 2
    assert "role: should be 'passive', 'active' or 'coordinator'" in done.stderr


def test_debug_may_stand_anywhere(folder: Path) -> None:
    done = vfl("jobs", "-p", "party_a.yaml", "--debug", where=folder)

    assert done.returncode == 2
    assert "Traceback" in done.stderr


def test_a_letter_that_the_output_cannot_hold_ends_nothing() -> None:
    code = "import common.runtime.cli.app as app; app.main = lambda: print('↑ größe')\n"
    code += "from common.runtime.cli.entry import main; main()"
    result = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, b"? gr??e\n")
