"""A passive party's part in VFB² with `theta: encrypted` between processes: it never sees θ."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from common.crypto.cipher import CipherVector, PaillierCipher, parse_ciphertexts
from common.crypto.entropy import SystemEntropy
from common.crypto.paillier import PublicKey
from common.crypto.secure_sum import OpenShares
from common.data.table import Table
from common.errors import RemoteProtocolError
from common.glm.asynchronous import UnseenUpdate
from common.glm.rank_rule import require_company
from common.rpc.pb import vfb2_pb2 as pb
from common.runtime.compute import InProcessExecutor
from common.runtime.config.vfb2 import Vfb2Job
from common.runtime.vfb2.columns import Columns
from common.runtime.vfb2.engine import Engine
from common.runtime.vfb2.guard import (
    MULTIPLYING,
    SCALE,
    fixed_batches,
    require_guarded,
    residues_from_bytes,
)
from common.runtime.vfb2.guest_calls import TrainingCalls
from common.runtime.vfb2.guest_service import MakeCalls
from common.runtime.vfb2.journal import COLLABORATING, Journal
from common.runtime.vfb2.outbound import Outbound
from common.runtime.vfb2.place import Place, Role, Snapshot
from common.runtime.vfb2.records import (
    Kept,
    SumsRecord,
    kept_to_bytes,
    sums_record,
)
from common.runtime.vfb2.sums import no_shares
from common.runtime.vfb2.wire import unseen_from
from party_a.vfb2 import Collaborator
from party_a.vfb2_calls import CollaboratorCalls, restore
from party_a.vfb2_guarded import GuardedCollaborator, GuardTools


class GuardedEngine(Engine):
    """The engine of a party whose updates come encrypted."""

    def __init__(
        self,
        place: Place,
        role: Role,
        journal: Journal,
        snapshot: Snapshot,
        guarded: GuardedCollaborator,
    ) -> None:
        """Take a role that stands where the journal says."""
        self._veiled = guarded
        self._key: PublicKey | None = None
        self._pending: deque[tuple[UnseenUpdate, CipherVector]] = deque()
        self._masked: dict[int, UnseenUpdate] = {}
        super().__init__(place, role, journal, snapshot)

    def use_key(self, key: PublicKey) -> None:
        """Take the dominator's key of this session."""
        self._key = key
        self._veiled.use_key(self.keeper, key)

    def begin(self, session: int, shares: OpenShares, parents: Mapping[str, Outbound[pb.PassedSum]]) -> None:
        """Begin a session; what was on its way is sent again."""
        self._pending.clear()
        self._masked.clear()
        super().begin(session, shares, parents)

    def restart_role(self, step: float) -> None:
        """Go back to the start: numbers of updates begin again."""
        self._pending.clear()
        self._masked.clear()
        self._veiled.forget()
        super().restart_role(step)

    def _hear(self, root: str, word: pb.DominatorWord) -> None:
        kind = word.WhichOneof("word")
        if self._derailed and kind != "start_over":
            return
        if kind == "sealed":
            self._on_sealed(root, word.sealed)
        elif kind == "residues":
            self._on_residues(root, word.residues)
        elif kind == "sealed_reference":
            self._on_sealed_reference(root, word.sealed_reference)
        elif kind in ("update", "reference"):
            raise RemoteProtocolError(f"{root} sent derivatives in the clear, where the job encrypts them")
        else:
            super()._hear(root, word)

    def _on_sealed(self, root: str, message: pb.SealedUpdate) -> None:
        update, heard = unseen_from(root, message, self.place.limits), self._heard[root]
        if update.number <= heard:
            return
        if update.number > heard + 1:
            raise RemoteProtocolError(f"update {update.number} of {root} came after {heard}: one is missing")
        self._heard[root] = update.number
        if len(self._pending) >= self.place.job.train.max_staleness:
            raise RemoteProtocolError("more updates came before their time than may be in flight")
        vector = parse_ciphertexts(message.ciphertexts, self._known_key(), len(update.rows))
        self._pending.append((update, vector))
        self._mask_due()

    def _release(self) -> None:
        super()._release()
        self._mask_due()

    def _mask_due(self) -> None:
        """Return masked gradients of the updates whose time has come."""
        while self._pending and self._may_apply(self._pending[0][0]):
            update, vector = self._pending.popleft()
            self._masked[update.number] = update
            with self.watch.counted(MULTIPLYING):
                sealed = self._veiled.masked(update, vector)
            self.say(pb.CollaboratorWord(masked=_masked(sealed.to_bytes(), number=update.number)))

    def _on_residues(self, root: str, message: pb.UnmaskedSums) -> None:
        residues = residues_from_bytes(message.residues, self._known_key())
        if message.reference:
            self._veiled.refer(residues)
            self._keep(lambda: self.say(pb.CollaboratorWord(referred=pb.Referred(epoch=message.number))))
            return
        update = self._masked.pop(message.number, None)
        if update is None:
            raise RemoteProtocolError(f"{root} decrypted what was not asked for")
        sums = self._veiled.apply(update, residues)
        record = self._journal.append(sums_record(SumsRecord(update, sums)))
        self._written.append((record, root, update.number))
        self._on_applied(update, None)

    def _on_sealed_reference(self, root: str, message: pb.SealedReference) -> None:
        vector = parse_ciphertexts(message.ciphertexts, self._known_key(), None)
        if self.collaboration.phase != "referring":
            return
        with self.watch.counted(MULTIPLYING):
            self._veiled.absorb_reference(root, message.epoch, message.start, vector)
        if message.start + len(vector) == self.place.limits.train:
            sealed = self._veiled.masked_reference().to_bytes()
            self.say(pb.CollaboratorWord(masked=_masked(sealed, number=message.epoch, reference=True)))

    def _known_key(self) -> PublicKey:
        if self._key is None:
            raise RemoteProtocolError(f"{self.keeper} has shown no public key")
        return self._key


def _masked(ciphertexts: bytes, *, number: int, reference: bool = False) -> pb.MaskedSums:
    return pb.MaskedSums(reference=reference, number=number, ciphertexts=ciphertexts)


class GuardedCalls(TrainingCalls):
    """The state of one job with encrypted θ at one passive party."""

    def make_engine(self, place: Place, columns: Columns, table: Table) -> Engine:
        """Return the engine with our block; refuse batches that would show us θ of a row."""
        job, rows = place.job, place.limits.train
        require_guarded(job, rows, {place.party: len(columns.names)})
        require_company(place.party, (columns.train.dense(batch) for batch in fixed_batches(job, rows)))
        role = Collaborator(columns.collaboration(job), no_shares(job))
        journal = Journal(self.folder, COLLABORATING)
        restore(role, journal, place)

        def snapshot() -> Callable[[], bytes]:
            return partial(kept_to_bytes, Kept(role.state()))

        tools = GuardTools(
            SCALE,
            SystemEntropy(),
            lambda key: PaillierCipher(key, InProcessExecutor(), SystemEntropy()),
            job.train.max_staleness,
        )
        guarded = GuardedCollaborator(role.collaboration, tools)
        return GuardedEngine(place, role, journal, snapshot, guarded)

    async def begin(self, request: pb.BeginSession) -> pb.SessionBegun:
        """Take the dominator's key, and part in a session."""
        engine, _ = self._ready()
        if isinstance(engine, GuardedEngine):
            key = PublicKey.from_bytes(request.theta_modulus, request.theta_noise_generator)
            if key.bits != engine.place.job.train.theta_key_bits:
                raise RemoteProtocolError(f"the dominator's key has {key.bits} bits, which is not the job's")
            engine.use_key(key)
        return await super().begin(request)


def calls_of(job: Vfb2Job) -> MakeCalls:
    """Return what makes this party's part of a job: with θ in the clear, or without ever seeing it."""
    return CollaboratorCalls if job.train.theta == "plain" else GuardedCalls
