"""Services where the extra for networks is not installed: they run, and say what to install."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "safetensors"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import party_a.service, party_b.service, coordinator.service, common.runtime.cli.app
from common.errors import Refused
from common.runtime.net_halves import require_networks
try:
    require_networks("party_a")
except Refused as exc:
    print(exc.what, "|", exc.advice)
"""


def test_every_service_starts_without_torch_and_refuses_networks_with_the_command_to_install_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "party_a" in done.stdout
    assert "pip install 'colonnade[nn]'" in done.stdout
