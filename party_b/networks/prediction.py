"""Conducts scores of new rows with a network: by both halves with A, or by B's student, which asks nobody."""

from __future__ import annotations

import asyncio

from common.data.table import Table
from common.errors import Refused, RemoteProtocolError
from common.nets.protect import Singles
from common.rpc.pb.splitnn_pb2 import RepresentRowsRequest
from common.runtime.checkpoint import Checkpoint
from common.runtime.config.predict import PredictJob
from common.runtime.net_design import encoded
from common.runtime.net_halves import require_networks, saved_scores, saved_top
from common.runtime.new_rows import NewFields, NewRows, open_new_rows
from common.runtime.saved_network import LoadedNetwork, SavedNetwork, load_network
from common.runtime.wire_numbers import WireReader, WireRows
from party_b.job_life import JobLife, Tools, turn_of
from party_b.jobs import ActiveJob
from party_b.passive_line import PassiveLine
from party_b.prediction import PredictionConductor
from party_b.prediction_outcome import Model, ScoredOutcome
from party_b.scoring_desk import ScoringDesk


class RepresentingClient(PassiveLine):
    """The active party's connection to one passive party in a prediction with a split network."""

    async def represent_rows(self, alignment_id: bytes, rows: int, width: int) -> Singles:
        """Return the party's representations of all common rows, (rows, width).

        Raises:
            PeerRefused: The party's policy does not allow so many.
            RemoteProtocolError: They are not one finite vector a row.
        """
        request = RepresentRowsRequest(turn=self._turn, alignment_id=alignment_id, rows=rows)
        reader = WireReader(WireRows(width, "float32"), rows)
        async for message in self._stub.RepresentRows(request, timeout=self._step_s):
            if reader.add(message.values):
                return reader.rows()
        raise RemoteProtocolError(f"{self.name} did not send one representation for each of {rows} rows")


class NetPredictionConductor(PredictionConductor):
    """Conducts a prediction with a network."""

    def __init__(self, active: ActiveJob, job: PredictJob, tools: Tools, desk: ScoringDesk) -> None:
        super().__init__(active, job, tools, desk)
        arguments = (tools.own, job, turn_of(active), tools.wiretap)
        self._representing = [RepresentingClient(name, *arguments) for name in job.passive]
        self.life = JobLife(active, tools, self._representing)
        self._network: LoadedNetwork | None = None
        self._fields: NewFields | None = None

    def _load(self) -> SavedNetwork:
        own, job = self._tools.own, self._job
        require_networks(own.party)
        self._network = load_network(self._tools.store, job.model, own.party)
        if self._network.saved.part == "active half" and job.mode == "online":
            raise Refused(
                "a split network scores batches, not single rows",
                advice="Use `vfl predict JOB --dataset NAME --out FILE.csv`.",
            )
        return self._network.saved

    def _read(self, model: Model) -> NewRows:
        self._fields = open_new_rows(self._tools.own, self._job, model)
        return self._fields.head

    async def _score(self, outcome: ScoredOutcome, table: Table) -> None:
        if self._network is None or self._fields is None:
            raise Refused(f"the model of job {self._job.model} is no network")
        weights, plan = self._network.weights, self._network.saved.plan
        rows, common = self._fields.rows, outcome.aligned.alignment.rows
        if self._network.saved.part == "student":
            every = await self.life.watch.thread("scores", saved_scores, weights, plan, rows)
            scores = every[common]
        else:
            folder = Checkpoint.of(self._tools.store, outcome.job_id).folder / "rows"
            own = await self.life.watch.thread("scores", encoded, rows, common, plan, folder)
            parties = await self._representations(outcome)
            scores = await self.life.watch.thread("scores", saved_top, weights, own.rows, parties)
        if self._job.mode == "online":
            await self._serve(outcome, scores)
            return
        outcome.scores = scores

    async def _representations(self, outcome: ScoredOutcome) -> dict[str, Singles]:
        alignment, saved = outcome.aligned.alignment, self._network
        with self.life.timed("scoring"):
            await self._active.enter("scoring", f"scoring {len(outcome.ids):,} common rows")
            width = 0 if saved is None else saved.saved.width
            found = await asyncio.gather(
                *(
                    one.represent_rows(alignment.alignment_id, len(outcome.ids), width)
                    for one in self._representing
                )
            )
        return {one.name: values for one, values in zip(self._representing, found, strict=True)}
