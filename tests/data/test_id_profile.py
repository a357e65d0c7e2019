"""Why two sides have no ids in common, found from coarse statistics."""

from __future__ import annotations

import pytest

from common.data.id_profile import CLASSES, IdProfile, likely_causes

PADDED = [f"{number:08d}" for number in range(300)]


def hints(ours: list[str], theirs: list[str]) -> str:
    return "\n".join(likely_causes("b", IdProfile.of(ours), "a", IdProfile.of(theirs)))


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ([one.lstrip("0") or "0" for one in PADDED], "leading zeros lost"),
        ([one.lstrip("0") or "0" for one in PADDED], "1 to 3 characters at a, 8 at b"),
        ([f"{one}.0" for one in PADDED], "decimal"),
        ([f"{int(one) + 1}e5" for one in PADDED], "spreadsheet"),
        ([f"C{one}" for one in PADDED], "a prefix or a suffix on one side?"),
        ([f"{one} " for one in PADDED], "set `strip` in both id rules"),
        ([f"{one}-0000-4000-8000-{one}0000" for one in PADDED], "the form of a UUID: 100 %"),
        ([f"é{one}" for one in PADDED], "letters beyond ASCII"),
    ],
)
def test_a_usual_cause_is_named(theirs: list[str], said: str) -> None:
    assert said in hints(PADDED, theirs)


def test_ids_of_which_some_have_lost_their_zeros_are_called_shorter() -> None:
    said = hints(PADDED, [*(one.lstrip("0") for one in PADDED[100:200]), *PADDED[:100]])
    assert "those of a are shorter" in said
    assert "leading zeros: 50 % of the ids at a, 100 % at b: leading zeros lost" in said


def test_names_of_any_length_are_no_question_of_width() -> None:
    ours, theirs = (["x" * (first + at % 9) for at in range(90)] for first in (4, 5))
    assert hints(ours, theirs) == ""
    assert "shorter" in hints(ours, [one + "yy" for one in ours])


def test_another_case_is_named() -> None:
    assert "set `case` in both id rules" in hints(["AB1", "AC2"], ["ab1", "ac2"])


def test_ids_that_look_alike_give_no_hint() -> None:
    assert hints(PADDED, [f"{number:08d}" for number in range(5000, 5300)]) == ""


def test_a_long_list_is_described_by_some_of_its_ids() -> None:
    profile = IdProfile.of([f"{number:08d}" for number in range(120_000)])
    assert (profile.count, profile.usual, profile.percent["digits"]) == (120_000, 8, 100)


def test_a_profile_is_coarse() -> None:
    profile = IdProfile.of([*["7"] * 97, "x", "y", "zz"])
    assert set(profile.percent) == CLASSES
    assert {share % 10 for share in profile.percent.values()} == {0}
    assert (profile.percent["digits"], profile.percent["lower case"]) == (100, 0)


def test_no_id_and_no_character_of_one_stands_in_the_hints() -> None:
    text = hints(["qqq7", "qqq8"], ["ZZ-1234567", "ZZ-1234568"])
    assert "qq" not in text
    assert "ZZ" not in text
    assert "123" not in text
