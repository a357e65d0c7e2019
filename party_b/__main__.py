"""`python -P -m party_b -c PARTY.yaml`: run the active party's service until SIGTERM."""

from __future__ import annotations

from common.runtime.service_process import leave, run_party
from party_b.service import ActiveService


def main() -> None:
    """Run the service; the exit code says how it ended."""
    leave(run_party("active", ActiveService))


if __name__ == "__main__":
    main()
