"""How an attempt ended: from what was seen of it to one terminal state, by facts only."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

from reveille_heartbeat.domain.answer import AgentError, Answer
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import IssueState, RunState
from reveille_heartbeat.domain.usage import Usage
from reveille_heartbeat.domain.values import FailureClass

MAX_MESSAGE = 2_000
MAX_LINE = 200
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_SHELL_WORDS = {
    126: "the program cannot be executed",
    127: "the program was not found",
}
# Two statuses by which a program without a result file can say what kind of failure it was; they
# are those of sysexits.h.
EXIT_CLASSES: Mapping[int, FailureClass] = {
    75: FailureClass.TRANSIENT,
    78: FailureClass.CONFIGURATION,
}
# The word for each class that an agent can name; what has no class of its own is its adapter's.
REASONS: Mapping[FailureClass, Reason] = {
    FailureClass.TRANSIENT: Reason.TRANSIENT_FAILURE,
    FailureClass.QUOTA: Reason.PROVIDER_QUOTA,
    FailureClass.REFUSAL: Reason.MODEL_REFUSAL,
    FailureClass.CREDENTIALS: Reason.CREDENTIALS_REJECTED,
    FailureClass.CONFIGURATION: Reason.CONFIGURATION_INCOMPLETE,
    FailureClass.MAX_TURNS: Reason.MAX_TURNS,
    FailureClass.OTHER: Reason.ADAPTER_FAILED,
}


class EndKind(StrEnum):
    """What was seen of an attempt's end."""

    EXITED = "exited"
    RAN_OUT = "ran_out"
    TOO_MUCH_OUTPUT = "too_much_output"
    NOT_STARTED = "not_started"
    # The machine had no room for it: disk, memory, processes, open files. That may pass.
    NO_ROOM = "no_room"
    BROKEN = "broken"
    LOST = "lost"
    # The service stopped under an agent that cannot outlive it.
    INTERRUPTED = "interrupted"


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
    failure_class: FailureClass = FailureClass.NONE
    retry_not_before: datetime | None = None
    usage: tuple[Usage, ...] = ()

    @property
    def brings_result(self) -> bool:
        """Whether the agent came to an end of its own, and not only to an end."""
        return self.state is RunState.SUCCEEDED or self.document is not None


def classify(end: End, answer: Answer | None, problem: str = "") -> Outcome:
    """Turn the end and the answer (or what is wrong with it) into an outcome.

    A failed attempt keeps its summary and result, but moves no issue: what a process says that
    then fails is not to be trusted with effects. Its class comes from the structured fields of the
    answer and from the exit status, never from what it wrote.
    """
    summary = answer.summary if answer is not None else ""
    document = answer.document if answer is not None else None
    usage = answer.usage if answer is not None else ()

    def failed(
        state: RunState,
        reason: Reason,
        message: str,
        failure_class: FailureClass = FailureClass.OTHER,
        retry_not_before: datetime | None = None,
    ) -> Outcome:
        return Outcome(
            state,
            reason,
            message[:MAX_MESSAGE],
            end.exit_code,
            summary,
            document,
            None,
            failure_class,
            retry_not_before,
            usage,
        )

    match end.kind:
        case EndKind.EXITED:
            error = answer.error if answer is not None else None
            if error is not None or end.exit_code not in (0, None):
                told = _told(error, end, problem)
                return failed(
                    RunState.FAILED,
                    REASONS[told.failure_class],
                    told.message,
                    told.failure_class,
                    told.retry_not_before,
                )
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
                usage=usage,
            )
        case EndKind.RAN_OUT:
            text = end.message or "it ran longer than its limit"
            return failed(RunState.TIMED_OUT, Reason.RUN_TIMEOUT, text)
        case EndKind.TOO_MUCH_OUTPUT:
            text = end.message or "it wrote more output than its limit"
            return failed(RunState.FAILED, Reason.OUTPUT_LIMIT, text)
        case EndKind.NOT_STARTED:
            return failed(RunState.FAILED, Reason.SETUP_FAILED, end.message)
        case EndKind.NO_ROOM:
            return failed(RunState.FAILED, Reason.SETUP_FAILED, end.message, FailureClass.TRANSIENT)
        case EndKind.BROKEN:
            return failed(RunState.FAILED, Reason.ADAPTER_FAILED, end.message)
        case EndKind.LOST:
            text = end.message or "the process vanished, and nothing tells how it ended"
            return failed(RunState.FAILED, Reason.PROCESS_LOST, text, FailureClass.LOST)
        case EndKind.INTERRUPTED:
            text = end.message or "the service stopped, and its agent with it"
            return failed(RunState.INTERRUPTED, Reason.SHUTDOWN, text)
        case _:
            assert_never(end.kind)


def _told(error: AgentError | None, end: End, problem: str) -> AgentError:
    """Put together what the agent said of its failure and what its exit status says."""
    by_status = EXIT_CLASSES.get(end.exit_code or 0, FailureClass.OTHER)
    if error is None:
        text = exit_text(end.exit_code or 0)
        if problem:
            text += f", and {problem}"
        if end.message:
            text += f"; its last words: {end.message}"
        return AgentError(by_status, text)
    failure_class = error.failure_class
    if failure_class is FailureClass.OTHER:
        failure_class = by_status
    message = error.message or f"the agent reported a failure ({failure_class.value})"
    return AgentError(failure_class, message, error.retry_not_before)


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
