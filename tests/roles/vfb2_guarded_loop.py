"""VFB² with encrypted θ as a loop without network: what crosses between the parties, as bytes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np

from common.crypto.cipher import PaillierCipher, parse_ciphertexts
from common.crypto.entropy import SeededEntropy
from common.crypto.fixed_point import FixedPoint
from common.crypto.private_key import PrivateKey
from common.data.split import BatchSchedule
from common.glm.asynchronous import UnseenUpdate
from common.glm.row_order import FixedBatches
from party_a.vfb2_guarded import GuardedCollaborator, GuardTools
from party_b.vfb2_guarded import GuardedDominator, OwnKey
from tests.crypto.conftest import P_256, P_512, Q_256, Q_512
from tests.roles.vfb2_loop import World

SCALE = FixedPoint(40)
KEYS = ((P_256, Q_256), (P_512, Q_512))


def schedule(job, rows):
    """The batches that all parties know."""
    batches = BatchSchedule(rows, job.batch_size, job.seed)
    return [batches.rows_of(number) for number in range(1, batches.batches + 1)]


@dataclass
class GuardedWorld(World):
    """All parties of a job; every dominator has a key of its own."""

    received: list = field(default_factory=list)  # (receiver, kind, bytes)
    decrypted: list = field(default_factory=list)  # (dominator, residues, modulus): what dominators see
    guarded: dict = field(default_factory=dict)
    collaborators: dict = field(default_factory=dict)

    def __post_init__(self):
        super().__post_init__()
        threads = ThreadPoolExecutor(1)
        columns = {name: len(role.weights) for name, role in self.roles.items()}
        for name, (p, q) in zip(self.job.dominators, KEYS, strict=False):
            role = self.roles[name]
            fixed = FixedBatches(schedule(self.job, len(self.X)), self.job.seed, name)
            role._own = replace(role._own, order=fixed, kind=UnseenUpdate)
            private = PrivateKey(p, q, SeededEntropy(name.encode()))
            cipher = PaillierCipher(private.public, threads, SeededEntropy(b"noise"))
            self.guarded[name] = GuardedDominator(role, OwnKey(private, cipher, SCALE), columns)
        for name, role in self.roles.items():
            tools = GuardTools(
                SCALE,
                SeededEntropy(b"masks" + name.encode()),
                lambda key: PaillierCipher(key, threads, SeededEntropy(b"noise of others")),
                self.job.max_staleness,
            )
            self.collaborators[name] = GuardedCollaborator(role.collaboration, tools)
            for dominator, guarded in self.guarded.items():
                if dominator != name:
                    self.collaborators[name].use_key(dominator, guarded.public)

    def others(self, dominator):
        return [name for name in self.job.names if name != dominator]

    def dominated(self, dominator):
        request = self.roles[dominator].pick()
        self.aggregate(request)
        self.updates.append(self.guarded[dominator].dominate(request))
        return self.updates[-1]

    def deliver(self, update):
        dominator = update.dominator
        for name in self.others(dominator):
            self.send(name, update)
        self.roles[dominator].apply(update)
        for name in self.others(dominator):
            applied = self.roles[name].collaboration.progress.counts[dominator]
            self.roles[dominator].outbox.acknowledge(name, applied, applied)

    def send(self, name, update):
        """Steps 1 to 3 for one collaborator."""
        guarded, role = self.guarded[update.dominator], self.collaborators[name]
        content = guarded.sealed(update.number).to_bytes()
        self.received.append((name, "theta", content))
        unseen = replace(update, thetas=np.zeros(0))
        vector = parse_ciphertexts(content, guarded.public, len(update.rows))
        masked = role.masked(unseen, vector).to_bytes()
        residues = guarded.decrypt(
            name, update.number, parse_ciphertexts(masked, guarded.public, len(self.roles[name].weights))
        )
        self.decrypted.append((update.dominator, residues, guarded.public.modulus))
        self.received.append((name, "residues", residues))
        role.apply(unseen, residues)

    def measure(self, piece=150):
        for request in self.keeper.ask_measure(piece):
            self.aggregate(request)
            self.keeper.take_measure(request.number)
        if self.keeper.collaboration.phase == "referring":
            self.refer(piece)
        return self.keeper.objective()

    def refer(self, piece):
        name = self.job.dominators[0]
        guarded, epoch = self.guarded[name], self.keeper.collaboration.epoch - 1
        whole = guarded.reference().opened()
        for other in self.others(name):
            role = self.collaborators[other]
            for start in range(0, len(self.X), piece):
                content = whole[start : start + piece]
                role.absorb_reference(name, epoch, start, content)
                role.absorb_reference(name, epoch, start, content)  # a retry changes nothing
            residues = guarded.decrypt_reference(other, epoch, role.masked_reference().opened())
            self.decrypted.append((name, residues, guarded.public.modulus))
            role.refer(residues)
        for part in self.keeper.reference(piece):
            self.keeper.collaboration.absorb_reference(part)
