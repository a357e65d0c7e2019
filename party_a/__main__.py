"""`python -P -m party_a -c PARTY.yaml`: run a passive party's service until SIGTERM."""

from __future__ import annotations

from common.runtime.service_process import leave, run_party
from party_a.service import PassiveService


def main() -> None:
    """Run the service; the exit code says how it ended."""
    leave(run_party("passive", PassiveService))


if __name__ == "__main__":
    main()
