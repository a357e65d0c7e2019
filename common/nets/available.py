"""Whether the extra that networks need is installed; nothing here imports it."""

from __future__ import annotations

from importlib.util import find_spec

from common.errors import ConfigError

_NEEDED = ("torch", "safetensors")


def require_torch() -> None:
    """Return if networks can be trained here.

    Raises:
        ConfigError: torch or safetensors is not installed; says what to install.
    """
    absent = [name for name in _NEEDED if not _is_there(name)]
    if absent:
        raise ConfigError(
            f"networks need {' and '.join(absent)}, which is an extra and not installed here",
            advice="pip install 'colonnade[nn]'",
        )


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
