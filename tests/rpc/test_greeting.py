"""Two sides that would misunderstand each other part at the greeting, with plain words about both."""

from __future__ import annotations

import re

import pytest

from common.errors import PeerRefused, Refused
from common.rpc.greeting import PROTOCOL_VERSION, check_caller, check_greeting, make_greeting, package_version
from common.rpc.pb.job_pb2 import Greeting


def test_a_fitting_greeting_is_accepted_at_both_ends() -> None:
    check_caller(make_greeting("party_b", "active"), "party_b", "active")
    check_greeting(make_greeting("party_a", "passive"), "party_a", "passive")
    check_greeting(make_greeting("party_a", "passive"), "party_a", None)


def test_another_protocol_version_is_refused_naming_both() -> None:
    greeting = make_greeting("party_a", "passive")
    greeting.protocol_version = PROTOCOL_VERSION + 1
    greeting.package_version = "9.9.9"
    theirs, ours = rf"version {PROTOCOL_VERSION + 1} .*9\.9\.9", f"this side version {PROTOCOL_VERSION} "
    both = f"{theirs}.*{ours}.*{re.escape(package_version())}"
    with pytest.raises(PeerRefused, match=both) as caught:
        check_greeting(greeting, "party_a", "passive", "127.0.0.1:7001")
    assert caught.value.where == "party_a at 127.0.0.1:7001"
    with pytest.raises(Refused, match="protocol version"):
        check_caller(greeting, "party_a")


@pytest.mark.parametrize(
    ("greeting", "words"),
    [
        (make_greeting("party_c", "passive"), "expected party_a, but the other side calls itself 'party_c'"),
        (
            make_greeting("party_a", "coordinator"),
            "party_a should be passive, but says that it is 'coordinator'",
        ),
        (Greeting(), "protocol version 0"),
        (Greeting(protocol_version=1, party="\x1b[2J" * 50), r"calls itself '\\x1b\[2J"),
    ],
)
def test_a_greeting_of_somebody_else_is_refused(greeting: Greeting, words: str) -> None:
    with pytest.raises(Refused, match=words) as caught:
        check_caller(greeting, "party_a", "passive")
    assert caught.value.what.isprintable()
    assert len(caught.value.what) < 300
