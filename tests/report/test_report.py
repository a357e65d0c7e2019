"""report.json and report.html."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from common.types import Role
from party_b.reporting.diagram import Flow, draw
from party_b.reporting.evaluation import Lift
from party_b.reporting.report import ModelPart, RowCounts, RunRecord, Traffic, report_html, report_json
from party_b.reporting.wording import amount_of_bytes, duration, metric, verdict

GOOD = {"mse": 2937.0, "rmse": 54.19, "mae": 43.08, "r2": 0.4974}
ALONE = {"mse": 3825.0, "rmse": 61.85, "mae": 48.96, "r2": 0.3454}
LIFT = Lift("test", 133, ALONE, GOOD, gain=888.0, half_width=614.0)
RECORD = RunRecord(
    settings={
        "job": "diabetes-ridge",
        "algorithm": "he_linear",
        "train": {"batch_size": None, "max_rounds": 3},
    },
    job_id="diabetes-ridge-1",
    version="0.1.0",
    parties={"party_a": "passive", "party_b": "active", "coordinator": "coordinator"},
    rows=RowCounts({"party_a": 442, "party_b": 442}, 442, 309, 133),
    rounds=3,
    converged=True,
    stopped_because="the loss settled",
    loss_history=(14_000.0, None, 9_000.0),
    metrics={"train": GOOD, "test": GOOD},
    lift=LIFT,
    seconds_total=12.5,
    seconds_by_phase={"prepare": 2.0, "encrypted_scores": 8.0},
    traffic={"party_a": Traffic(1_200_000, 900), "party_b": Traffic(1, 2), "coordinator": Traffic(0, 0)},
    leaks=["party_a saw its own gradient.", "Every party knows the job file."],
    models={"party_b": ModelPart(["s3", "s4"], [-1.5, 2.0], 152.0)},
    flows=[
        Flow("party_a", "party_b", "scores", "309 a round", "encrypted"),
        Flow("party_b", "party_a", "residuals", "309 a round", "encrypted"),
        Flow("party_b", "party_a", "rows", "once", "clear"),
        Flow("party_a", "party_b", "digests", "once", "clear"),
        Flow("coordinator", "party_b", "gradient", "5 a round", "masked"),
        Flow("coordinator", "party_b", "loss", "3 in all", "clear"),
        Flow("party_b", "coordinator", "gradient", "5 a round", "encrypted"),
    ],
    reference_losses={"party_b alone": 5_000.0},
)
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """Collects what a browser would fetch or run, and checks that tags nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.references: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.references += [value or "" for name, value in attrs if name in {"src", "href", "xlink:href"}]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in {"style", "title"}:
            self.text += data


def test_report_json_has_the_keys_that_scripts_rely_on() -> None:
    document = report_json(RECORD)
    assert document["job"] == "diabetes-ridge"
    assert document["algorithm"] == "he_linear"
    assert document["rows"] == {"party_a": 442, "party_b": 442, "aligned": 442, "train": 309, "test": 133}
    assert document["rounds"] == 3
    assert document["converged"] is True
    assert document["loss_history"] == [14_000.0, None, 9_000.0]
    assert document["seconds"] == {
        "total": 12.5,
        "by_phase": {"prepare": 2.0, "encrypted_scores": 8.0},
        "by_party": {},
    }
    assert document["estimate"] is None
    assert document["metrics"] == {"train": GOOD, "test": GOOD}
    lift, traffic, model = document["lift"], document["traffic"], document["model"]
    assert isinstance(lift, Mapping)
    assert (lift["local"], lift["federated"]) == ({"test": ALONE}, {"test": GOOD})
    assert isinstance(traffic, Mapping)
    assert traffic["party_a"] == {"sent_bytes": 1_200_000, "received_bytes": 900}
    assert isinstance(model, Mapping)
    assert model["party_b"].items() >= {"features": ["s3", "s4"], "intercept": 152.0}.items()
    assert model["party_b"]["coefficients"] == [-1.5, 2.0]
    assert document.keys() >= {"version", "parties", "stopped_because", "leaks"}


def test_numbers_that_json_does_not_have_become_null() -> None:
    record = replace(
        RECORD,
        loss_history=(math.nan, math.inf, np.float64(1.5)),
        metrics={"train": {"r2": math.nan}, "test": None},
        models={"party_b": ModelPart(("x",), np.array([np.nan]), -math.inf)},  # type: ignore[arg-type]
    )
    document = report_json(record)
    text = json.dumps(document, allow_nan=False)
    assert document["loss_history"] == [None, None, 1.5]
    assert document["metrics"] == {"train": {"r2": None}, "test": None}
    assert json.loads(text)["model"]["party_b"]["coefficients"] == [None]


def test_the_page_is_well_formed_and_fetches_and_runs_nothing() -> None:
    text = report_html(RECORD)
    page = Page(text)
    assert page.open == []
    assert "script" not in page.tags
    assert "link" not in page.tags
    assert "img" not in page.tags
    assert all(reference.startswith("#") for reference in page.references)
    assert "@import" not in text
    assert set(re.findall(r"url\((.)", text)) <= {"#"}
    assert "default-src 'none'" in text


def test_the_page_says_what_matters() -> None:
    text = Page(report_html(RECORD)).text
    for words in (
        "The federation helped",
        "0.4974",
        "Who learnt what",
        "Saw its own gradient.",
        "1.2 MB",
        "−1.500",
    ):
        assert words in text
    assert "not converged" not in text


def test_names_from_outside_are_shown_as_text_and_never_as_markup() -> None:
    evil = "<script>alert(1)</script>"
    record = replace(
        RECORD,
        settings={**RECORD.settings, "job": evil},
        leaks=[evil],
        notes=[evil],
        models={"party_b": ModelPart([evil], [1.0])},
        reference_losses={evil: 5_000.0},
    )
    page = Page(report_html(record))
    assert "script" not in page.tags
    assert evil in page.text


def test_the_same_record_gives_the_same_page() -> None:
    assert report_html(RECORD) == report_html(RECORD)


@pytest.mark.parametrize(
    "changes",
    [
        {"lift": None},
        {"loss_history": ()},
        {"loss_history": (None, None, None)},
        {"loss_history": (1.0,)},
        {"loss_history": (1e9, 1e-9), "reference_losses": {}},
        {"flows": (), "leaks": (), "traffic": {}, "seconds_by_phase": {}, "models": {}},
        {"rounds": 0, "seconds_total": 0.0},
        {"lift": Lift("train", 309, ALONE, ALONE, 0.0, 0.0), "metrics": {"train": ALONE, "test": None}},
        {"models": {"party_a": ModelPart([], []), "party_b": ModelPart(["x"] * 99, [0.0] * 99, 0.0)}},
    ],
)
def test_a_run_without_some_of_it_still_has_a_report(changes: dict[str, object]) -> None:
    record = replace(RECORD, **changes)  # type: ignore[arg-type]
    assert Page(report_html(record)).open == []
    json.dumps(report_json(record), allow_nan=False)


@pytest.mark.parametrize(
    ("gain", "half_width", "converged", "tone", "claim"),
    [
        (888.0, 614.0, True, "better", "23.2 % lower"),
        (888.0, 900.0, True, "same", "cannot tell the two apart"),
        (-888.0, 614.0, True, "worse", "The federation did not help"),
        (-888.0, 614.0, False, "worse", "before it had converged, whereas party_b alone"),
        (888.0, math.nan, True, "same", "No clear difference"),
    ],
)
def test_the_verdict_goes_by_the_interval_of_the_gain(
    gain: float, half_width: float, converged: bool, tone: str, claim: str
) -> None:
    found = verdict(Lift("test", 133, ALONE, GOOD, gain, half_width), "party_b", converged)
    assert found.tone == tone
    assert claim in f"{found.headline}. {found.text}"


def test_no_arrow_of_the_diagram_enters_a_box() -> None:
    diagram = draw(RECORD.parties, RECORD.flows)
    assert [number for number, _ in diagram.flows] == [1, 2, 3, 4, 5, 6, 7]
    assert len(diagram.boxes) == 3
    for arrow in diagram.arrows:
        for x, y in (arrow.start, arrow.end, arrow.label):
            assert 0 <= x <= diagram.width
            assert diagram.top <= y <= diagram.top + diagram.height
            inside = [
                box
                for box in diagram.boxes
                if box.left < x < box.left + box.width and box.top < y < box.top + box.height
            ]
            assert not inside
        assert arrow.start != arrow.end


@pytest.mark.parametrize("protections", [("clear",), ("clear", "masked", "encrypted")])
def test_a_drawing_without_a_coordinator_leaves_no_room_for_one_and_cuts_nothing_off(
    protections: tuple[str, ...],
) -> None:
    parties: dict[str, Role] = {"party_a": "passive", "party_b": "active"}
    ways = (("party_a", "party_b"), ("party_b", "party_a"))
    diagram = draw(parties, [Flow(*way, "numbers", "10", how) for way in ways for how in protections])
    box = diagram.boxes[0]
    numbers = [arrow.label[1] for arrow in diagram.arrows]
    assert len(set(numbers)) == 2 * len(protections)
    highest, lowest = min(box.top, *numbers), max(box.top + box.height, *numbers)
    assert diagram.top < highest < diagram.top + 12
    assert lowest < diagram.top + diagram.height < lowest + 12


def test_amounts_are_written_for_people() -> None:
    assert [metric(value) for value in (2937.04, 0.49741, -7.6572, 0.0, 12.0)] == [
        "2,937",
        "0.4974",
        "−7.657",
        "0",
        "12.00",
    ]
    assert [metric(value) for value in (None, math.nan, 2.42e9, 1e-7)] == ["–", "–", "2.420e+09", "1.000e−07"]
    assert [amount_of_bytes(count) for count in (0, 999, 1_200, 166_800, 67_100_000)] == [
        "0 B",
        "999 B",
        "1.2 kB",
        "167 kB",
        "67.1 MB",
    ]
    assert [duration(seconds) for seconds in (0.421, 12.34, 99.97, 185.0, 7_380.0)] == [
        "0.42 s",
        "12.3 s",
        "1 min 40 s",
        "3 min 05 s",
        "2 h 03 min",
    ]


def test_what_two_parties_learnt_is_not_said_of_the_first_alone():
    html = report_html(
        replace(RECORD, leaks=["party_b and party_a each learnt the size of the other's set."])
    )
    assert "party_b and party_a each learnt" in html
    assert "Several parties" in html


def test_a_classifier_has_its_auc_in_front_and_as_a_bar_from_one_half():
    measures = {"auc": 0.75, "log_loss": 0.5, "accuracy": 0.7, "ks": 0.4}
    alone = {**measures, "auc": 0.6}
    lift = Lift("test", 133, alone, measures, gain=0.1, half_width=0.01, measure="log_loss")
    html = report_html(replace(RECORD, lift=lift, metrics={"train": measures, "test": measures}))
    assert "<dt>AUC on test rows</dt><dd>0.7500<small>0.6000 for party_b alone</small>" in html
    duel = html[html.index('<div class="duel">') :]
    assert "width:50.00%" in duel
    assert "width:20.00%" in duel
    assert "explained</h3>" not in html


def test_conjugate_gradients_without_a_tolerance_are_not_said_to_have_met_one():
    settings = {**RECORD.settings, "train": {"solver": "cg"}}
    html = report_html(replace(RECORD, settings=settings, stopped_because="residual"))
    assert "the residual was as small as this precision allows" in html
    assert "tolerance" not in html[html.index("<dt>Rounds</dt>") : html.index("<dt>Time</dt>")]


def test_conjugate_gradients_stop_by_the_residual_and_the_page_says_so():
    settings = {**RECORD.settings, "algorithm": "he_logistic", "train": {"solver": "cg"}}
    html = report_html(replace(RECORD, settings=settings, stopped_because="tolerance"))
    assert "Encrypted logistic regression between" in html
    assert "the residual fell below the tolerance" in html
    assert "after the round's step" in html.replace("&#39;", "'")
