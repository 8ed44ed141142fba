"""Limits of rules: the page says what the code holds to."""

from __future__ import annotations

import re
from pathlib import Path

from reveille_autopilot.domain.accepting import MAX_FILTERS, MAX_RULE_BYTES, MAX_TRIGGERS
from reveille_autopilot.domain.template import MAX_TITLE
from reveille_autopilot.rpc.parse import MAX_PAYLOAD, MAX_PROMPT, MAX_SUBSCRIBERS

PAGE = (Path(__file__).resolve().parents[2] / "docs/autopilot.md").read_text("utf-8")


def test_the_page_of_rules_names_their_limits() -> None:
    table = PAGE.split("\n| limit | at most |\n|---|---|\n")[1].split("\n\n")[0]
    told = re.findall(r"^\| (.+) \| ([\d,]+) \|$", table, re.MULTILINE)

    assert {what: int(most.replace(",", "")) for what, most in told} == {
        "triggers of a rule": MAX_TRIGGERS,
        "events that a webhook listens for, and actions of an event": MAX_FILTERS,
        "followers": MAX_SUBSCRIBERS,
        "characters of a prompt": MAX_PROMPT,
        "characters of a title, and of the title template": MAX_TITLE,
        "bytes of a payload that a run by hand brings": MAX_PAYLOAD,
        "bytes of a rule with all its triggers": MAX_RULE_BYTES,
    }
