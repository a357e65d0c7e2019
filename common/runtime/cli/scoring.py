"""What is asked for, and what is fetched, when new rows are scored with a model that a job has left."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from common.errors import ConfigError, JobError
from common.rpc.pb.active_party_pb2 import JOB_FINISHED, JobRecord, ScoreIdsReply
from common.runtime.cli.jobs import status_word
from common.runtime.cli.operator import Operator, write_result
from common.runtime.config.job_kinds import job_from_json
from common.runtime.config.local import LocalParty
from common.runtime.config.party import PartyConfig
from common.runtime.config.predict import PredictJob, prediction_name
from common.runtime.config.vfb2 import Vfb2Job

_PREDICTIONS = "predictions.csv"


def prediction_with(record: JobRecord, dataset: str) -> PredictJob:
    """Return the job that scores a data set with the model of a finished job.

    Raises:
        JobError: That job has left no model.
    """
    trained = job_from_json(record.job_json)
    if record.status != JOB_FINISHED or isinstance(trained, PredictJob):
        status = status_word(record)
        why = "it failed" if status == "failed" else f"it is {status}"
        why = "it is itself a prediction" if isinstance(trained, PredictJob) else why
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


def require_dataset(scorers: Iterable[PartyConfig | LocalParty], name: str, path: Path) -> None:
    """Refuse, before anything starts, a data set that somebody who has to score it does not have.

    Raises:
        ConfigError: Names the party, and the data sets that it has in the file.
    """
    for party in scorers:
        if name not in party.datasets:
            raise ConfigError(
                f'{party.party} has no data set "{name}"',
                where=str(path),
                advice=f"Data sets of {party.party} in the file: {', '.join(party.datasets) or 'none'}.",
            )


async def fetch_scores(operator: Operator, job_id: str, out: Path) -> dict[str, Any]:
    """Put a finished prediction's scores where they are wanted; return its report."""
    with tempfile.TemporaryDirectory(prefix="vfl-") as folder:
        await operator.fetch(job_id, Path(folder))
        write_result(out, (Path(folder) / _PREDICTIONS).read_bytes())
        report: dict[str, Any] = json.loads((Path(folder) / "report.json").read_text(encoding="utf-8"))
        return report


def scores_csv(reply: ScoreIdsReply) -> str:
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
