"""How an attempt ended: from what was seen of it to one terminal state, by facts only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from reveille_heartbeat.domain.answer import Answer
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import IssueState, RunState

MAX_MESSAGE = 2_000


class EndKind(StrEnum):
    """What was seen of an attempt's end."""

    EXITED = "exited"
    RAN_OUT = "ran_out"
    TOO_MUCH_OUTPUT = "too_much_output"
    NOT_STARTED = "not_started"
    BROKEN = "broken"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class End:
    """The end itself. `exit_code` is a shell's: 128 + n for a process killed by signal n."""

    kind: EndKind
    exit_code: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What settle writes."""

    state: RunState
    reason: Reason | None = None
    message: str = ""
    exit_code: int | None = None
    summary: str = ""
    document: bytes | None = None
    issue_status: IssueState | None = None


def classify(end: End, answer: Answer | None, problem: str = "") -> Outcome:
    """Turn the end and the answer (or what is wrong with it) into an outcome.

    A failed attempt keeps its summary and result, but moves no issue: what a process says that
    then fails is not to be trusted with effects.
    """
    summary = answer.summary if answer is not None else ""
    document = answer.document if answer is not None else None

    def failed(state: RunState, reason: Reason, message: str) -> Outcome:
        return Outcome(state, reason, message[:MAX_MESSAGE], end.exit_code, summary, document)

    match end.kind:
        case EndKind.EXITED:
            if end.exit_code not in (0, None):
                text = end.message or exit_text(end.exit_code or 0)
                return failed(RunState.FAILED, Reason.ADAPTER_FAILED, text)
            if problem:
                return failed(RunState.FAILED, Reason.ADAPTER_FAILED, problem)
            return Outcome(
                RunState.SUCCEEDED,
                None,
                "",
                end.exit_code,
                summary,
                document,
                answer.issue_status if answer is not None else None,
            )
        case EndKind.RAN_OUT:
            return failed(RunState.TIMED_OUT, Reason.RUN_TIMEOUT, "it ran longer than its limit")
        case EndKind.TOO_MUCH_OUTPUT:
            text = end.message or "it wrote more output than its limit"
            return failed(RunState.FAILED, Reason.OUTPUT_LIMIT, text)
        case EndKind.NOT_STARTED:
            return failed(RunState.FAILED, Reason.SETUP_FAILED, end.message)
        case EndKind.BROKEN:
            return failed(RunState.FAILED, Reason.ADAPTER_FAILED, end.message)
        case EndKind.LOST:
            text = end.message or "the process vanished, and nothing tells how it ended"
            return failed(RunState.FAILED, Reason.PROCESS_LOST, text)
        case _:
            assert_never(end.kind)


def exit_text(code: int) -> str:
    """Say how a process ended, in words."""
    if code > 128:
        return f"the process was ended by signal {code - 128}"
    return f"the process exited with status {code}"
