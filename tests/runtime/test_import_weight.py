"""What a service loads at its start: memory that lasts as long as it runs."""

from __future__ import annotations

import subprocess
import sys


def test_the_key_holder_does_not_load_what_prepares_data() -> None:
    loaded = "import coordinator.service, sys; print(*{'sklearn', 'torch', 'pandas'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-P", "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
