"""Following a job: against a real server on loopback that plays the active party's service from a script."""

# ruff: noqa: N802 - the methods' names are those of protos/vfl/v1/active_party.proto

from __future__ import annotations

import asyncio
import io
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from rich.console import Console

from common.errors import JobCancelled, JobError, PeerUnreachable, RemoteProtocolError
from common.rpc.identity import Context
from common.rpc.pb import active_party_pb2 as pb
from common.rpc.pb.active_party_pb2_grpc import ActivePartyServicer, add_ActivePartyServicer_to_server
from common.rpc.pb.job_pb2 import ErrorDetail
from common.rpc.server import PartyServer
from common.rpc.tls import Security
from common.rpc.wiretap import Wiretap
from common.runtime.cli.console import ProgressLines
from common.runtime.cli.follow import follow
from common.runtime.cli.operator import operating, raise_if_unsuccessful
from common.runtime.config.job import load_job
from common.runtime.config.job_kinds import round_word
from common.runtime.config.party import PartyConfig, load_party

Write = Callable[[str, str], Path]

PARTY = """
    party: party_b
    role: active
    listen: {address}
    insecure: true
    peers: {{party_a: 127.0.0.1:1, coordinator: 127.0.0.1:2}}
    state: state
    datasets: {{diabetes: {{source: {{csv: x.csv}}}}}}
    deadlines: {{call_s: 5, peer_s: 5}}
"""

REPORT = {
    "job": "ridge",
    "algorithm": "he_linear",
    "rounds": 2,
    "stopped_because": "max_rounds",
    "loss_history": [4.0, 1.0],
    "rows": {"train": 7, "test": 3},
    "metrics": {"train": {"r2": 0.6}, "test": {"r2": 0.5}},
    "lift": {"local": {"test": {"r2": 0.25}}, "federated": {"test": {"r2": 0.5}}},
    "seconds": {"total": 1.5, "by_phase": {}},
    "traffic": {"party_b": {"sent_bytes": 1234, "received_bytes": 0}},
}


class ScriptedService(ActivePartyServicer):
    """Sends the events it is given; breaks off after `breaks_after` of them, once."""

    def __init__(
        self,
        events: Sequence[pb.JobEvent],
        artifacts: Sequence[pb.ArtifactChunk] = (),
        breaks_after: int | None = None,
    ) -> None:
        self.events = events
        self.artifacts = artifacts
        self.breaks_after = breaks_after
        self.watched = 0
        self.cancelled: list[str] = []
        self.ends = asyncio.Event()
        self.ends.set()

    async def SubmitJob(self, request: pb.SubmitJobRequest, context: Context) -> pb.JobRecord:
        return pb.JobRecord(job_id="ridge-1", status=pb.QUEUED, job_json=request.job_json)

    async def WatchJob(self, request: pb.JobReference, context: Context) -> AsyncIterator[pb.JobEvent]:
        self.watched += 1
        for number, event in enumerate(self.events):
            if number == self.breaks_after and self.watched == 1:
                raise PeerUnreachable("the service went away")
            if event.HasField("record"):
                await self.ends.wait()
            yield event

    async def ShowJob(self, request: pb.JobReference, context: Context) -> pb.JobRecord:
        return self.events[-1].record

    async def CancelJob(self, request: pb.JobReference, context: Context) -> pb.JobRecord:
        self.cancelled.append(request.job)
        self.ends.set()
        return pb.JobRecord(job_id=request.job, status=pb.JOB_CANCELLED)

    async def FetchArtifacts(
        self, request: pb.JobReference, context: Context
    ) -> AsyncIterator[pb.ArtifactChunk]:
        for chunk in self.artifacts:
            yield chunk


@asynccontextmanager
async def served(service: ScriptedService, write: Write) -> AsyncIterator[tuple[PartyConfig, Path]]:
    """Serve on a free port; yield the party's configuration and the file it is in."""
    server = PartyServer("party_b", "127.0.0.1:0", Security(tls=None), Wiretap(), ())
    server.add(add_ActivePartyServicer_to_server, service, pb.DESCRIPTOR.services_by_name["ActiveParty"])
    path = write("party_b.yaml", PARTY.format(address=await server.start()))
    try:
        yield load_party(path), path
    finally:
        await server.stop(0)


def event(number: int, phase: str = "training", *, at_s: float = 0.0) -> pb.JobEvent:
    return pb.JobEvent(
        job_id="ridge-1", phase=phase, round=number, max_rounds=9, loss=10.0 / (number + 1), elapsed_s=at_s
    )


def ended(status: pb.JobStatus.ValueType = pb.JOB_FINISHED, error: ErrorDetail | None = None) -> pb.JobEvent:
    record = pb.JobRecord(job_id="ridge-1", status=status, error=error)
    return pb.JobEvent(job_id="ridge-1", phase="ended", round=9, max_rounds=9, elapsed_s=99, record=record)


def artifacts(**contents: str) -> list[pb.ArtifactChunk]:
    """Return files in chunks of a few bytes, as a large one would come in chunks."""
    return [
        pb.ArtifactChunk(name=name.replace("__", "."), content=content[at : at + 7].encode())
        for name, content in contents.items()
        for at in range(0, len(content), 7)
    ]


class Seen:
    """Remembers the rounds that were shown."""

    def __init__(self) -> None:
        self.rounds: list[int] = []
        self.told: list[str] = []

    def show(self, event: pb.JobEvent) -> None:
        self.rounds.append(event.round)

    def tell(self, text: str) -> None:
        self.told.append(text)


async def test_every_event_is_shown_and_the_last_record_returned(write: Write) -> None:
    service, seen = ScriptedService([event(1), event(2), ended()]), Seen()

    async with served(service, write) as (config, _), operating(config) as operator:
        record = await follow(operator, "ridge-1", seen)

    assert seen.rounds == [1, 2, 9]
    assert record.status == pb.JOB_FINISHED


async def test_a_lost_connection_is_taken_up_again(write: Write) -> None:
    service, seen = ScriptedService([event(1), event(2), ended()], breaks_after=1), Seen()

    async with served(service, write) as (config, _), operating(config) as operator:
        await follow(operator, "ridge-1", seen)

    assert service.watched == 2
    assert seen.rounds == [1, 1, 2, 9]
    assert seen.told == ["the connection to party_b is lost; it has 5 s to come back", "party_b is back"]


async def test_a_service_that_stays_away_is_an_error_within_its_deadline(write: Write) -> None:
    service = ScriptedService([event(1), ended()])
    async with served(service, write) as (config, _):
        pass
    patience = config.deadlines.model_copy(update={"peer_s": 0.1})

    async with operating(config.model_copy(update={"deadlines": patience})) as operator:
        with pytest.raises(PeerUnreachable, match="party_b"):
            await follow(operator, "ridge-1", Seen())


async def test_artifacts_are_written_whole(write: Write, tmp_path: Path) -> None:
    service = ScriptedService(
        [ended()], artifacts(report__json=json.dumps(REPORT), predictions_test__csv="id,score\n")
    )

    async with served(service, write) as (config, _), operating(config) as operator:
        paths = await operator.fetch("ridge-1", tmp_path)

    assert [path.name for path in paths] == ["report.json", "predictions_test.csv"]
    assert json.loads(paths[0].read_text()) == REPORT


@pytest.mark.parametrize("name", ["../evil.json", "/etc/passwd", "a/b.html", ".bashrc", "x.sh"])
async def test_an_artifact_cannot_be_written_outside_its_folder(
    write: Write, tmp_path: Path, name: str
) -> None:
    service = ScriptedService([ended()], [pb.ArtifactChunk(name=name, content=b"x")])

    async with served(service, write) as (config, _), operating(config) as operator:
        with pytest.raises(RemoteProtocolError):
            await operator.fetch("ridge-1", tmp_path / "out")


@pytest.mark.parametrize(
    ("status", "error", "kind", "code"),
    [
        (pb.JOB_FAILED, "PeerUnreachable", PeerUnreachable, 3),
        (pb.JOB_FAILED, "NumericError", Exception, 1),
        (pb.JOB_FAILED, "ConfigError", JobError, 1),
        (pb.JOB_FAILED, "os", JobError, 1),
        (pb.JOB_FAILED, "", JobError, 1),
        (pb.JOB_CANCELLED, "PeerUnreachable", JobCancelled, 1),
    ],
)
def test_a_job_that_failed_is_the_error_it_failed_with(
    status: pb.JobStatus.ValueType, error: str, kind: type[Exception], code: int
) -> None:
    record = ended(status, ErrorDetail(error=error, what="it broke", where="here", advice="mend it")).record

    with pytest.raises(kind) as caught:
        raise_if_unsuccessful(record)

    assert getattr(caught.value, "exit_code", None) == code
    assert "job ridge-1, here" in getattr(caught.value, "where", "")


def test_lines_are_few_but_keep_every_phase_and_the_last_round() -> None:
    text = io.StringIO()
    lines = ProgressLines(Console(file=text, width=140))

    lines.show(pb.JobEvent(phase="opening", message="hello"))
    for number in range(1, 101):
        lines.show(event(number, at_s=number / 10))
    lines.show(ended())

    rounds = [
        line.split("round ")[1].split("/")[0] for line in text.getvalue().splitlines() if "training" in line
    ]
    assert rounds == ["1", "31", "61", "91", "100"]
    assert "opening" in text.getvalue().splitlines()[0]
    assert "ended" in text.getvalue().splitlines()[-1]


def test_news_within_a_phase_without_rounds_is_shown_at_once() -> None:
    text = io.StringIO()
    lines = ProgressLines(Console(file=text, width=140))

    lines.show(pb.JobEvent(phase="students", message="training 2 models"))
    lines.show(pb.JobEvent(phase="students", message="1 of 2 models: local", eta_s=3.0, elapsed_s=0.5))
    lines.show(pb.JobEvent(phase="students", message="1 of 2 models: local", elapsed_s=0.6))

    assert [line.split()[3] for line in text.getvalue().splitlines()] == ["training", "eta"]


def test_epochs_are_called_epochs() -> None:
    text = io.StringIO()
    progress = pb.JobEvent(phase="training", round=3, max_rounds=9, unit=round_word("vfb2"))
    ProgressLines(Console(file=text, width=140)).show(progress)
    assert "training    epoch 3/9" in text.getvalue()


async def started_train(
    write: Write, job_text: str, party: Path, *options: str
) -> asyncio.subprocess.Process:
    """Start `vfl train` and wait until it follows the job."""
    program = "from common.runtime.cli.app import main; main()"
    job = write("job.yaml", job_text)
    load_job(job)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", program, "train", "-c", str(job), "-p", str(party), *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async for line in process.stdout:
        if b"round 1/9" in line:
            break
    return process


async def test_ctrl_c_detaches_and_says_how_to_come_back(write: Write, job_text: str) -> None:
    service = ScriptedService([event(1), ended()])
    service.ends.clear()

    async with served(service, write) as (_, path):
        process = await started_train(write, job_text, path)
        process.send_signal(signal.SIGINT)
        out, _ = await process.communicate()

    assert process.returncode == 130
    assert f"vfl show ridge-1 --follow -p {path}" in out.decode()
    assert service.cancelled == []


async def test_ctrl_c_cancels_when_asked_to(write: Write, job_text: str) -> None:
    service = ScriptedService(
        [event(1), ended(pb.JOB_CANCELLED, ErrorDetail(what="cancelled by its operator"))]
    )
    service.ends.clear()

    async with served(service, write) as (_, path):
        process = await started_train(write, job_text, path, "--cancel-on-interrupt")
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()

    assert process.returncode == 1
    assert service.cancelled == ["ridge-1"]
    assert "cancelled by its operator" in err.decode()


async def test_train_ends_with_a_table_and_files(write: Write, job_text: str, tmp_path: Path) -> None:
    service = ScriptedService([event(1), ended()], artifacts(report__json=json.dumps(REPORT)))

    async with served(service, write) as (_, path):
        process = await started_train(write, job_text, path, "--out", str(tmp_path / "out"))
        out, err = await process.communicate()

    assert process.returncode == 0, err
    text = out.decode()
    for expected in ("2 rounds", "max_rounds", "R²", "0.5", "0.25", "1.23 kB", str(tmp_path / "out")):
        assert expected in text
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == REPORT


async def test_a_failed_job_ends_with_its_own_exit_code_and_one_block(write: Write, job_text: str) -> None:
    error = ErrorDetail(error="PeerUnreachable", what="party_a cannot be reached", advice="start it")
    service = ScriptedService([event(1), ended(pb.JOB_FAILED, error)])

    async with served(service, write) as (_, path):
        process = await started_train(write, job_text, path)
        _, err = await process.communicate()

    assert process.returncode == 3
    assert "error: party_a cannot be reached\n  where: job ridge-1\n  do:    start it\n" in err.decode()
    assert "Traceback" not in err.decode()
