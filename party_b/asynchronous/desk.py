"""The VFB² jobs that this party conducts now: where streams of other parties find them."""

from __future__ import annotations

from party_b.asynchronous.engine import KeeperEngine


class ConductedDesk:
    """Engines by job."""

    def __init__(self) -> None:
        self._engines: dict[str, KeeperEngine] = {}

    def engine(self, job_id: str) -> KeeperEngine | None:
        """Return the engine of a job that trains here now."""
        return self._engines.get(job_id)

    def add(self, job_id: str, engine: KeeperEngine) -> None:
        """Let streams find a job."""
        self._engines[job_id] = engine

    def remove(self, job_id: str) -> KeeperEngine | None:
        """Let nobody find it any more; return its engine if there was one."""
        return self._engines.pop(job_id, None)
