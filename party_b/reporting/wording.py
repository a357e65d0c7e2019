"""Words and numbers of a report: the verdict, and how amounts are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from party_b.reporting.evaluation import Lift


@dataclass(frozen=True, slots=True)
class Learnt:
    """What one party learnt; without a party, what holds for several."""

    party: str
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the federation was worth it.

    Attributes:
        tone: `better`, `same`, `worse` or `unknown`.
        headline: A few words.
        text: A few sentences, with numbers.
    """

    tone: str
    headline: str
    text: str


def verdict(lift: Lift | None, active: str, converged: bool) -> Verdict:
    """Say in plain words whether the federation predicts better than the active party alone."""
    if lift is None:
        return Verdict("unknown", "Not compared", f"{active} alone was not measured in this run.")
    tone, headline = _tone(lift, converged)
    rows = f"{lift.rows:,} {'test' if lift.partition == 'test' else 'training'} rows"
    before, after = lift.local[lift.measure], lift.federated[lift.measure]
    name = {"mse": "mean squared error", "log_loss": "log loss"}[lift.measure]
    text = (
        f"On {rows} the {name} is {metric(after)} for the federation and {metric(before)} for "
        f"{active} alone: {_change(before, after)}."
    )
    if math.isfinite(lift.half_width):
        low, high = lift.gain - lift.half_width, lift.gain + lift.half_width
        text += f" The gain is {metric(lift.gain)}, with a 95 % interval from {metric(low)} to {metric(high)}"
        text += ", so these rows cannot tell the two apart." if tone == "same" else "."
    if lift.partition == "train":
        text += " There are no test rows: these are rows that both were trained on, which flatters both."
    if not converged and tone != "better":
        text += (
            f" The federation stopped before it had converged, whereas {active} alone is solved exactly: "
            "training for longer may change this."
        )
    return Verdict(tone, headline, text)


def _tone(lift: Lift, converged: bool) -> tuple[str, str]:
    if not math.isfinite(lift.half_width) or abs(lift.gain) <= lift.half_width:
        return "same", "No clear difference"
    if lift.gain > 0:
        return "better", "The federation helped"
    return "worse", "The federation did not help" if converged else "The federation has not helped yet"


def _change(before: float, after: float) -> str:
    if before <= 0:
        return "nothing is left to gain"
    share = abs(after - before) / before
    return f"{100 * share:.1f} % {'lower' if after <= before else 'higher'}"


def metric(value: float | None) -> str:
    """Return four significant digits, with separators for thousands."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e9 or size < 1e-4:
        return _minus(f"{value:.3e}")
    decimals = max(0, 3 - math.floor(math.log10(size)))
    return _minus(f"{value:,.{decimals}f}")


def signed(value: float) -> str:
    """Return the same with a sign in front."""
    return f"+{metric(value)}" if value > 0 else metric(value)


def amount_of_bytes(count: int) -> str:
    """Return bytes in the unit that leaves one to three digits before the point."""
    value, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def duration(seconds: float) -> str:
    """Return seconds as "0.42 s", "12.3 s", "3 min 05 s" or "2 h 03 min"."""
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02d} min"


def percent(value: float, most: float) -> str:
    """Return value as a percentage of the largest one, for the length of a bar."""
    if not (math.isfinite(value) and math.isfinite(most)) or most <= 0:
        return "0"
    return f"{max(0.0, min(100.0, 100.0 * value / most)):.2f}"


def words(key: str) -> str:
    """Return a key as words: "by_phase" becomes "by phase"."""
    return key.replace("_", " ")


def _minus(text: str) -> str:
    return text.replace("-", "−")


FILTERS: Mapping[str, Callable[..., str]] = MappingProxyType(
    {
        "metric": metric,
        "signed": signed,
        "bytes": amount_of_bytes,
        "duration": duration,
        "percent": percent,
        "words": words,
    }
)
