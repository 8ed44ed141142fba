"""Wakeups: the page asks what the code asks, in the same order and with the same reasons."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.heartbeat.test_enqueue_rules import REFUSED
from tests.unit.heartbeat.test_placing import HELD_BACK

from reveille_heartbeat.domain.enqueue import DECISIONS
from reveille_heartbeat.domain.placing import GATES
from reveille_heartbeat.domain.reasons import Reason

PAGE = (Path(__file__).resolve().parents[2] / "docs/wakeups.md").read_text("utf-8")


def reasons_after(words: str) -> list[list[Reason]]:
    """The reasons in the rows of the first table after some words."""
    rows = PAGE[PAGE.index(words) :].split("\n|---|---|\n")[1].split("\n\n")[0].splitlines()
    return [
        [Reason(name) for name in re.findall(r"`(\w+)`", row.strip("|").rsplit(" | ")[-1])]
        for row in rows
    ]


def test_the_page_names_what_speaks_against_a_wish_in_the_order_of_the_code() -> None:
    asked: list[list[Reason]] = []
    for decision in DECISIONS:
        refusals = [decision(wish, facts) for wish, facts, _ in REFUSED]
        found = [refusal.reason for refusal in refusals if refusal is not None]
        asked.append(list(dict.fromkeys(found)))

    assert reasons_after("## What speaks against it") == asked


def test_the_page_names_what_a_run_of_its_own_has_to_pass() -> None:
    told = reasons_after("What would have a run of its own")

    assert len(told) == len(GATES)
    for gate, reasons in zip(GATES, told, strict=True):
        refusals = [gate(wish, facts) for wish, facts, _ in HELD_BACK]
        assert {each.reason for each in refusals if each is not None} <= set(reasons)
        assert any(refusals)
