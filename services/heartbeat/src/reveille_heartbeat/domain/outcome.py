"""How an attempt ended: from what was seen of it to one terminal state, by facts only."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import assert_never

from reveille_heartbeat.domain.answer import Answer
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import IssueState, RunState

MAX_MESSAGE = 2_000
MAX_LINE = 200
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_SHELL_WORDS = {
    126: "the program cannot be executed",
    127: "the program was not found",
}


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
    """The end itself. `exit_code` is a shell's: 128 + n for a process killed by signal n.

    `message` is what is known beyond the kind; of a process that exited, its last line on stderr.
    """

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

    @property
    def brings_result(self) -> bool:
        """Whether the agent came to an end of its own, and not only to an end."""
        return self.state is RunState.SUCCEEDED or self.document is not None


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
                text = exit_text(end.exit_code or 0)
                if end.message:
                    text += f"; its last words: {end.message}"
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
            text = end.message or "it ran longer than its limit"
            return failed(RunState.TIMED_OUT, Reason.RUN_TIMEOUT, text)
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
    meaning = _SHELL_WORDS.get(code)
    text = f"the process exited with status {code}"
    return text if meaning is None else f"{text}, by which a shell says that {meaning}"


def span_text(span: timedelta) -> str:
    """Say how long a time is, in the largest units that tell it whole."""
    seconds = round(span.total_seconds())
    parts = [(seconds // 3600, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    return " ".join(f"{count} {unit}" for count, unit in parts if count) or "0 s"


def last_line(output: bytes) -> str:
    """Give the last line that says something, made safe to show anywhere and cut to one glance."""
    lines = output.decode(errors="replace").splitlines()
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    shown = "".join(_REPLACEMENT if _is_control(char) else char for char in said)
    return shown if len(shown) <= MAX_LINE else shown[: MAX_LINE - 1] + "…"


def _is_control(char: str) -> bool:
    """Control and format characters move a terminal's cursor, or turn its text around."""
    return unicodedata.category(char).startswith("C")
