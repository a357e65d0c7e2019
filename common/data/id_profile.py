"""What a party's ids look like, in coarse classes, so that two sides can find out why few are common.

A profile holds no id and no character of one: lengths, and shares of classes rounded to 10 %.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Class -> which ids belong to it. Classes may overlap.
_CLASSES: Mapping[str, re.Pattern[str]] = {
    "digits": re.compile(r"[0-9]+"),
    "leading zeros": re.compile(r"0[0-9]+"),
    "a decimal point": re.compile(r"[+-]?[0-9]+\.[0-9]+"),
    "exponent form": re.compile(r"[+-]?[0-9]+(\.[0-9]+)?[eE][+-]?[0-9]+"),
    "upper case": re.compile(r"(?=.*[A-Z])[^a-z]+"),
    "lower case": re.compile(r"(?=.*[a-z])[^A-Z]+"),
    "white space": re.compile(r".*\s.*", re.DOTALL),
    "the form of a UUID": re.compile(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}"),
    "letters beyond ASCII": re.compile(r".*[^\x00-\x7f].*", re.DOTALL),
}

CLASSES = frozenset(_CLASSES)

# What a difference in a class usually comes from.
_CAUSES: Mapping[str, str] = {
    "digits": "a prefix or a suffix on one side?",
    "leading zeros": "leading zeros lost, as when a file was written from numbers? "
    "`pad_zeros` in both id rules puts them back",
    "a decimal point": "whole numbers written as decimals, such as 1.0?",
    "exponent form": "long numbers written by a spreadsheet?",
    "upper case": "set `case` in both id rules?",
    "lower case": "set `case` in both id rules?",
    "white space": "set `strip` in both id rules, or mend what is inside?",
    "the form of a UUID": "another kind of id?",
    "letters beyond ASCII": "set `unicode` in both id rules, or mend the encoding?",
}

# Fewer ids without a partner are not described: one alone would be no aggregate, and few show but chance.
LEAST_DESCRIBED = 20

# By so much the shares of a class must differ to be worth a sentence. Of 50 ids on each side, the least that
# are described by default, two shares differ by chance by 10 on average at most, and by rounding by 5 each.
_TELLING_PERCENT = 30
# Lengths of ids that have no fixed width differ by chance; the usual ones by less than this.
_TELLING_CHARACTERS = 2
# Of more ids than these, evenly spread ones are looked at: a share moves by less than the rounding.
_LOOKED_AT = 50_000


@dataclass(frozen=True, slots=True)
class IdProfile:
    """Coarse statistics of a list of ids.

    Attributes:
        count: How many ids it is about.
        shortest: Characters of the shortest id.
        longest: Characters of the longest id.
        usual: The median of their lengths.
        same_beginning: Characters that all ids begin with in common; how many, not which.
        percent: Share of each class, rounded to 10.
    """

    count: int
    shortest: int
    longest: int
    usual: int
    same_beginning: int
    percent: Mapping[str, int]

    @classmethod
    def of(cls, ids: Sequence[str]) -> IdProfile:
        """Return the profile of a list of at least one id; of a long one, of some of them."""
        count, ids = len(ids), ids[:: 1 + len(ids) // _LOOKED_AT]
        lengths = [len(one) for one in ids]
        counts = {
            name: sum(form.fullmatch(one) is not None for one in ids) for name, form in _CLASSES.items()
        }
        return cls(
            count=count,
            shortest=min(lengths),
            longest=max(lengths),
            usual=statistics.median_low(lengths),
            same_beginning=_common_characters(min(ids), max(ids)),
            percent={name: 10 * round(10 * count / len(ids)) for name, count in counts.items()},
        )


def likely_causes(own: str, ours: IdProfile, other: str, theirs: IdProfile) -> list[str]:
    """Return how the ids of two parties differ, a sentence each; empty when they look alike."""
    hints = []
    if _widths_differ(ours, theirs):
        shorter = other if theirs.usual < ours.usual else own
        hints.append(
            f"ids have {_lengths(theirs)} characters at {other}, {_lengths(ours)} at {own}, "
            f"those of {shorter} are shorter: zero-padding or a prefix on one side?"
        )
    for name, cause in _CAUSES.items():
        here, there = ours.percent.get(name, 0), theirs.percent.get(name, 0)
        if abs(here - there) >= _TELLING_PERCENT:
            hints.append(f"{name}: {there} % of the ids at {other}, {here} % at {own}: {cause}")
    if bool(ours.same_beginning) != bool(theirs.same_beginning):
        prefixed = other if theirs.same_beginning else own
        hints.append(f"all ids of {prefixed} begin alike, those of the other side do not: a prefix?")
    return hints


def _widths_differ(ours: IdProfile, theirs: IdProfile) -> bool:
    if ours.shortest == ours.longest or theirs.shortest == theirs.longest:
        return (ours.shortest, ours.longest) != (theirs.shortest, theirs.longest)
    return abs(ours.usual - theirs.usual) >= _TELLING_CHARACTERS


def _common_characters(first: str, last: str) -> int:
    """Return how many characters two texts begin with in common; of all between them too."""
    pairs = enumerate(zip(first, last, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(first), len(last)))


def _lengths(profile: IdProfile) -> str:
    if profile.shortest == profile.longest:
        return str(profile.shortest)
    return f"{profile.shortest} to {profile.longest}"
