"""Whether A was worth it, in a job with networks: a headline and a few sentences, with numbers."""

from __future__ import annotations

from collections.abc import Iterator

from party_b.networks.findings import NAMES, Compared, NetFindings
from party_b.reporting.evaluation import Lift
from party_b.reporting.wording import Verdict, metric, signed


def network_verdict(findings: NetFindings, lift: Lift | None, active: str) -> Verdict:
    """Say what the job's own model is worth beside the active party alone, and how sure that is."""
    if findings.own == "local":
        return Verdict("unknown", "Alone", f"This is {active}'s own model: nobody else took part.")
    if lift is None:
        return Verdict("unknown", "Not compared", f"{active} alone was not measured in this run.")
    name = findings.own
    which = "test" if lift.partition == "test" else "training"
    decisive = _decisive(findings)
    if decisive is None:
        rows = f"On {lift.rows:,} {which} rows the AUC is {metric(lift.federated['auc'])} for {name} and "
        rows += f"{metric(lift.local['auc'])} for {active} alone ({signed(100 * _gain(lift))} points)."
        repeat = (
            "One seed shows little: two trainings of the same network differ by tenths of a point. "
            "With compare: {seeds: 5} the job repeats everything and gives an interval."
        )
        return Verdict("unknown", "One run: not yet an answer", f"{rows} {repeat}")
    against = f"{active}'s own network" + (
        " (two averaged)" if decisive.reference == NAMES["local_twice"] else ""
    )
    seeds = (
        f"Over {decisive.seeds} seeds the AUC of {name} minus that of {against} is {signed(decisive.mean)} "
        f"points on average, ± {metric(decisive.half_width)} (95 % interval)."
    )
    tone, headline, end = _word(decisive)
    first = (
        f"Everything below that is about one model is about that of the first seed, which this job leaves: "
        f"{metric(lift.federated['auc'])} on {lift.rows:,} {which} rows, {active} alone "
        f"{metric(lift.local['auc'])}."
    )
    return Verdict(tone, headline, " ".join([seeds, end, *_asking(findings), first]))


def _asking(findings: NetFindings) -> Iterator[str]:
    """Say it, where A's columns would help whoever asks for them, more than they help this model."""
    for one in findings.compared:
        if one.reference == NAMES["splitnn"] and one.overlap == 1.0 and one.says == "worse":
            yield (
                f"Asked for every prediction, A would help: on common rows the split network is "
                f"{metric(-one.mean)} points above {findings.own}."
            )


def _gain(lift: Lift) -> float:
    return lift.federated["auc"] - lift.local["auc"]


def _decisive(findings: NetFindings) -> Compared | None:
    """Return the comparison that answers the question: two averaged networks, if ours has two heads."""
    first = (NAMES["local"], NAMES["local_twice"])
    for reference in first if findings.own == NAMES["splitnn"] else reversed(first):
        for one in findings.compared:
            if one.reference == reference and one.overlap == 1.0 and one.seeds > 1:
                return one
    return None


def _word(found: Compared) -> tuple[str, str, str]:
    if found.says == "better":
        return "better", "A is worth it", "The whole interval is above 0: what A knows helps."
    if found.says == "worse":
        return "worse", "A is not worth it", "The whole interval is below 0: without A it is better."
    return (
        "same",
        "No difference is shown",
        "The interval includes 0: these runs do not show that A helps, nor that it does harm.",
    )
