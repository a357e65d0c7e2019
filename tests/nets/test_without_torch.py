"""Without the extra, everything else works and the error says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

_HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] == 'torch':
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hidden())
"""
_TRY = """
from common.errors import ConfigError
try:
    import {module}
except ConfigError as refusal:
    print(refusal.advice)
"""
NEED_TORCH = ["split", "pooled", "jpl", "student", "teaching", "comparison", "threads"]


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", _HIDE + code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("name", NEED_TORCH)
def test_a_module_that_needs_torch_says_how_to_install_it(name: str) -> None:
    assert run(_TRY.format(module=f"common.nets.{name}")) == "pip install 'colonnade[nn]'"


def test_fields_shapes_and_protections_work_without_torch() -> None:
    code = """
import common.nets.available, common.nets.batches, common.nets.encoded, common.nets.fields
import common.nets.marvell, common.nets.protect, common.nets.shape, common.nets.recipe
import common.nets.baselines, common.nets.attacks, common.nets.lift, common.nets.scores
print(sorted(name for name, module in sys.modules.items() if name.startswith('torch')))
"""
    assert run(code) == "[]"


def test_asking_for_torch_says_how_to_install_it() -> None:
    code = """
from common.errors import ConfigError
from common.nets.available import require_torch
try:
    require_torch()
except ConfigError as refusal:
    print(refusal.exit_code, refusal.advice)
"""
    assert run(code) == "2 pip install 'colonnade[nn]'"
