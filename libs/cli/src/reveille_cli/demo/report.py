"""Tells a reader what came in, what ran, what the agents said and who answers for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any
from urllib.parse import urlsplit

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from rich.table import Table
from rich.text import Text

from reveille.autopilot.v1.autopilot_pb2 import Autopilot
from reveille_cli.commands.trace import show_trace, trace_json
from reveille_cli.commands.why import explanation_json, show_finding
from reveille_cli.demo.checks import Check
from reveille_cli.demo.github import HookAnswer, masked
from reveille_cli.demo.stage import CRON, Stage
from reveille_cli.demo.story import RunStory, Story
from reveille_cli.jsonform import plain
from reveille_cli.printer import Printer, state_text, table_of


def report_story(story: Story, printer: Printer) -> None:
    """Print everything but the checks."""
    heading(printer, "What came in")
    printer.draw(_came_in(story))
    heading(printer, "What ran")
    printer.draw(_ran(story))
    heading(printer, "What the agents said")
    for seen in runs_of(story):
        for line in _said(story.stage, seen):
            printer.text(line)
    heading(printer, "Who answers for it")
    printer.draw(_attribution(story))
    for words, traced in (("The webhook's", story.webhook), ("The schedule's", story.schedule)):
        if traced is not None and traced.trace is not None:
            heading(printer, f"{words} trace")
            show_trace(traced.trace, printer)
    heading(printer, f"Why: reveille why {story.why.asked}")
    for finding in story.why.findings:
        show_finding(finding, printer)


def report_checks(checks: Sequence[Check], printer: Printer) -> None:
    """Print each promise, and what was seen where one was broken."""
    heading(printer, "Checked")
    for check in checks:
        printer.text(f"  {'✓' if check.kept else '✗'} {check.promise}")
        if not check.kept:
            printer.text(f"      {check.found}")


def heading(printer: Printer, words: str) -> None:
    """Begin a part of the report."""
    printer.text("")
    printer.draw(Text(words, style="bold"))


def runs_of(story: Story) -> Iterator[RunStory]:
    """Yield the runs that there were."""
    yield from (seen for seen in (story.webhook, story.schedule, story.manual) if seen is not None)


def document(story: Story, checks: Sequence[Check]) -> dict[str, Any]:
    """Return what a script may want to know."""
    return {
        "ok": all(check.kept for check in checks),
        "deliveries": [
            plain(each) for each in (story.delivery, story.rejected) if each is not None
        ],
        "executions": [plain(story.execution)] if story.execution is not None else [],
        "runs": [
            {
                **plain(seen.run),
                "attempts": [plain(attempt) for attempt in seen.attempts],
                "issue": plain(seen.issue) if seen.issue is not None else None,
                "output": seen.output,
                "trace": trace_json(seen.trace) if seen.trace is not None else None,
            }
            for seen in runs_of(story)
        ],
        "why": explanation_json(story.why),
        "checks": [
            {"promise": check.promise, "kept": check.kept, "found": check.found} for check in checks
        ],
    }


def _came_in(story: Story) -> Table:
    rows: list[tuple[Text | str, ...]] = []
    posts, delivery, rejected = story.posts, story.delivery, story.rejected
    hook = masked(urlsplit(story.stage.hook_url).path)
    for when, what, answer in (
        (
            delivery and delivery.receive_time,
            f"POST {hook}: GitHub issues.opened, {len(posts.request.body):,} bytes",
            posts.first,
        ),
        (delivery and delivery.last_receive_time, "the same request again", posts.again),
        (rejected and rejected.receive_time, "the same body, signature forged", posts.forged),
    ):
        rows.append((_clock(when), what, _answer(answer), f"{answer.seconds * 1000:.0f} ms"))
    rows.append((_clock(story.manual.run.create_time), "RunAutopilot, called by a person", "", ""))
    if (execution := story.execution) is not None:
        rows.append(
            (
                _clock(execution.plan_time),
                f"cron “{CRON}” (UTC)",
                state_text(_word(execution, "state")),
                _took(execution.start_time, execution.finish_time),
            )
        )
    return table_of(["TIME (UTC)", "WHAT", "ANSWER", "TOOK"], rows)


def _ran(story: Story) -> Table:
    rows = [
        (
            _word(seen.run, "source"),
            _rule(story.stage, seen.run.autopilot_id).title,
            _word(seen.run, "execution_mode"),
            story.stage.agents[seen.run.agent_id],
            state_text(_word(seen.run, "state")),
            _took(seen.run.create_time, seen.run.finish_time),
            f"{seen.issue.identifier} {_word(seen.issue, 'status')}" if seen.issue else "",
        )
        for seen in runs_of(story)
    ]
    return table_of(["SET OFF BY", "RULE", "MODE", "AGENT", "OUTCOME", "TOOK", "ISSUE"], rows)


def _said(stage: Stage, seen: RunStory) -> Iterator[str]:
    agent = stage.agents[seen.run.agent_id]
    yield f"  {agent}, in the {_word(seen.run, 'source')} run:"
    yield from (f"    │ {line}" for line in seen.output.splitlines())
    if seen.attempt is not None:
        yield f"    summary: {seen.attempt.summary}"
        if seen.attempt.message:
            yield f"    {_word(seen.attempt, 'state')}: {seen.attempt.message}"


def _attribution(story: Story) -> Table:
    rows = []
    publishers: Mapping[str, str] = {
        each.trigger_id: each.publisher_user_id
        for each in (story.stage.webhook, story.stage.schedule)
    }
    for seen in runs_of(story):
        rule = _rule(story.stage, seen.run.autopilot_id)
        rows.append(
            (
                _word(seen.run, "source"),
                publishers.get(seen.run.trigger_id, rule.creator_user_id),
                seen.run.originator_user_id or "nobody",
                seen.run.accountable_user_id,
                _word(seen.run, "attribution_source"),
                seen.run.rule_version_id,
            )
        )
    return table_of(
        ["SET OFF BY", "PUBLISHED BY", "STARTED BY", "ANSWERS", "BECAUSE", "RULE VERSION"], rows
    )


def _rule(stage: Stage, autopilot_id: str) -> Autopilot:
    rules = (stage.on_issue, stage.each_minute, stage.by_hand)
    return next(each for each in rules if each.autopilot_id == autopilot_id)


def _answer(answer: HookAnswer) -> Text:
    words = " ".join(filter(None, (answer.status, answer.text("reason"))))
    return Text(f"{answer.code} {words}", style=state_text(answer.status).style)


def _word(message: Message, field: str) -> str:
    return str(plain(message)[field] or "")


def _clock(moment: Timestamp | None) -> str:
    return f"{moment.ToDatetime(UTC):%H:%M:%S.%f}"[:-3] if moment else ""


def _took(start: Timestamp, end: Timestamp) -> str:
    if not end.ToNanoseconds():
        return ""
    return f"{(end.ToNanoseconds() - start.ToNanoseconds()) / 1e6:,.0f} ms"
