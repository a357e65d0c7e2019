"""`vfl predict`: scores of new rows with a model that a job has left."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from common.errors import ConfigError, JobError
from common.rpc.pb.active_party_pb2 import JOB_FINISHED, JobRecord, ScoreIdsReply
from common.runtime.cli.console import open_console, say
from common.runtime.cli.follow import follow_on_console
from common.runtime.cli.jobs import JobName, PartyFile, status_word
from common.runtime.cli.operator import Operator, made_folder, operating, raise_if_unsuccessful
from common.runtime.cli.results import print_results
from common.runtime.config.job_kinds import job_from_json
from common.runtime.config.party import PartyConfig, load_party
from common.runtime.config.predict import PredictJob, prediction_name
from common.runtime.config.vfb2 import Vfb2Job
from common.runtime.state import write_atomically

_PREDICTIONS = "predictions.csv"


def predict(
    job: JobName,
    party: PartyFile,
    dataset: Annotated[
        str, typer.Option("--dataset", metavar="NAME", help="The new rows: a data set of every party's file.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.csv", help="Where id and score are written.")
    ] = None,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="Score this row only, now; may be given several times."),
    ] = None,
) -> None:
    """Score new rows with the model of a finished job; the file has the order of the data set."""
    own = load_party(party)
    if dataset not in own.datasets:
        raise ConfigError(
            f'{own.party} has no data set "{dataset}"',
            where=str(party),
            advice=f"Data sets in the party file: {', '.join(own.datasets) or 'none'}.",
        )
    if not ids and out is None:
        raise ConfigError("nobody said where the scores are to be written", advice="Add --out FILE.csv.")
    if out is not None:
        made_folder(out.parent)
    if ids:
        asyncio.run(_score_ids(own, (job, dataset), ids, out))
    elif out is not None:
        asyncio.run(_predict(own, (job, dataset), out))


def prediction_with(record: JobRecord, dataset: str) -> PredictJob:
    """Return the job that scores a data set with the model of a finished job.

    Raises:
        JobError: That job has left no model.
    """
    trained = job_from_json(record.job_json)
    if record.status != JOB_FINISHED or isinstance(trained, PredictJob):
        why = (
            "it is itself a prediction" if isinstance(trained, PredictJob) else f"it is {status_word(record)}"
        )
        raise JobError(
            f"job {record.job_id} has left no model: {why}", advice="`vfl jobs` lists those that finished."
        )
    values = {
        "job": prediction_name(trained.job),
        "algorithm": "predict",
        "active": trained.active,
        "also_active": list(trained.also_active) if isinstance(trained, Vfb2Job) else [],
        "passive": list(trained.scorers),
        "model": record.job_id,
        "data": {"dataset": dataset},
    }
    return PredictJob.model_validate_json(json.dumps(values))


async def _predict(own: PartyConfig, wanted: tuple[str, str], out: Path) -> None:
    job, dataset = wanted
    console = open_console()
    async with operating(own) as operator:
        submitted = await operator.submit(prediction_with(await operator.show(job), dataset))
        say(console, f"job {submitted.job_id} is submitted")
        record = await follow_on_console(operator, submitted.job_id, console, "cancel")
        if record is not None:
            raise_if_unsuccessful(record)
            print_results(console, await _fetched(operator, record.job_id, out))
            say(console, f"file: {out}")


async def _fetched(operator: Operator, job_id: str, out: Path) -> dict[str, Any]:
    """Put the scores where they are wanted; return the report."""
    with tempfile.TemporaryDirectory(prefix="vfl-") as folder:
        await operator.fetch(job_id, Path(folder))
        write_atomically(out, (Path(folder) / _PREDICTIONS).read_bytes())
        report: dict[str, Any] = json.loads((Path(folder) / "report.json").read_text(encoding="utf-8"))
        return report


async def _score_ids(own: PartyConfig, wanted: tuple[str, str], ids: Sequence[str], out: Path | None) -> None:
    async with operating(own) as operator:
        text = _csv(await operator.score(*wanted, ids))
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(out, text.encode())


def _csv(reply: ScoreIdsReply) -> str:
    """Return the scores as the file of a batch has them; an id that not every party has gets none."""
    columns = ["score", "probability"][: 1 + any(row.HasField("probability") for row in reply.rows)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", *columns])
    for row in reply.rows:
        score = repr(row.score) if row.HasField("score") else ""
        probability = repr(row.probability) if row.HasField("probability") else ""
        writer.writerow([row.id, score, probability][: 1 + len(columns)])
    return text.getvalue()
