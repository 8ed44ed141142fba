"""How long a service that went away is waited for."""

from __future__ import annotations

import pytest

from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure
from reveille_cli.patience import LIMIT, Patience

AWAY = Failure("service_unreachable", "heartbeat does not answer", ExitCode.UNAVAILABLE)


class Time:
    def __init__(self) -> None:
        self.pauses: list[float] = []

    def now(self) -> float:
        return sum(self.pauses)

    def patience(self) -> Patience:
        return Patience(self.now, self.pauses.append)


def test_a_service_may_be_away_for_a_minute_and_each_answer_begins_another() -> None:
    time = Time()
    patience = time.patience()
    for _ in range(2):
        patience.answered()
        time.pauses.clear()
        while time.now() < LIMIT:
            patience.bear(AWAY)
        with pytest.raises(Failure):
            patience.bear(AWAY)
        assert time.pauses[:6] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
        assert sum(time.pauses) == LIMIT


def test_what_never_answered_or_refuses_is_not_waited_for() -> None:
    time = Time()
    patience = time.patience()
    with pytest.raises(Failure):
        patience.bear(AWAY)
    patience.answered()
    with pytest.raises(Failure):
        patience.bear(Failure("not_found", "no such attempt", ExitCode.NOT_FOUND))
    assert time.pauses == []
