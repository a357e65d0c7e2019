"""`python -P -m coordinator -c PARTY.yaml`: run the key holder's service until SIGTERM."""

from __future__ import annotations

from common.runtime.service_process import leave, run_party
from coordinator.service import CoordinatorService


def main() -> None:
    """Run the service; the exit code says how it ended."""
    leave(run_party("coordinator", CoordinatorService))


if __name__ == "__main__":
    main()
