"""Sessions that break again and again end a job only when nothing came of them for too long."""

from __future__ import annotations

from party_b.asynchronous.headway import Headway


def test_sessions_that_lead_nowhere_are_given_up_after_the_patience():
    headway = Headway(patience_s=10.0)
    assert headway.broken_off((1, 40), 100.0)
    assert headway.broken_off((1, 40), 110.0)
    assert not headway.broken_off((1, 40), 110.5)


def test_an_update_or_an_epoch_between_two_breaks_begins_the_patience_anew():
    headway = Headway(patience_s=10.0)
    for standing, now_s in (((1, 40), 100.0), ((1, 41), 109.0), ((2, 41), 118.0), ((2, 41), 127.0)):
        assert headway.broken_off(standing, now_s)
