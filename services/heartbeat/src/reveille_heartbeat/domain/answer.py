"""What an agent answers: the object in its result file, read without trusting it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from reveille_heartbeat.domain.states import IssueState
from reveille_heartbeat.domain.usage import BadUsage, Usage, read_usage
from reveille_heartbeat.domain.values import FailureClass
from reveille_runtime import plain_json

MAX_BYTES = 1 << 20
MAX_SUMMARY = 4_000
# What a feed event may carry of it; the run keeps the whole.
MAX_EVENT_BYTES = 16_384
FIELDS = ("summary", "result", "usage", "next_action", "issue_status", "session", "error")
MAX_ERROR = 2_000
# What an agent may say of its own failure; the other classes are for us to see.
ERROR_CLASSES = (
    FailureClass.TRANSIENT,
    FailureClass.QUOTA,
    FailureClass.REFUSAL,
    FailureClass.CREDENTIALS,
    FailureClass.CONFIGURATION,
    FailureClass.MAX_TURNS,
)

_REPLACEMENT = "\ufffd"
# Values of an answer that is checked in a moment; 64 characters of a text are as much.
_SMALL = 4_000


class BadAnswer(Exception):
    """There is an answer that cannot be used; the message says why, for the agent's author."""


@dataclass(frozen=True, slots=True)
class AgentError:
    """Why the agent did not come to a good end, in its own words and class."""

    failure_class: FailureClass = FailureClass.OTHER
    message: str = ""
    # The provider's wish not to be asked earlier.
    retry_not_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A usable answer."""

    summary: str = ""
    document: bytes = b"{}"
    issue_status: IssueState | None = None
    error: AgentError | None = None
    usage: tuple[Usage, ...] = ()


def _unchanged(text: str) -> str:
    return text


def read_document(content: bytes) -> dict[str, Any]:
    """Read a result file, as its agent wrote it.

    Raises:
        BadAnswer: it is not a JSON object.
    """
    if len(content) > MAX_BYTES:
        raise BadAnswer(f"the result file is larger than {MAX_BYTES} bytes")
    try:
        parsed = plain_json.loads(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise BadAnswer("the result file is not UTF-8") from None
    except RecursionError:
        raise BadAnswer("the result file is nested too deeply") from None
    except ValueError as error:
        raise BadAnswer(f"the result file is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise BadAnswer("the result file does not hold a JSON object")
    return parsed


def is_large(said: Mapping[str, Any]) -> bool:
    """Tell whether checking an answer takes longer than others should have to wait for."""
    left = _SMALL
    found: list[Any] = [said]
    while found and left > 0:
        value = found.pop()
        left -= 1
        if isinstance(value, str):
            left -= len(value) // 64
        elif isinstance(value, Mapping):
            found.extend(value.values())
        elif isinstance(value, list | tuple):
            found.extend(value)
    return left <= 0


def answer_of(said: Mapping[str, Any], redact: Callable[[str], str] = _unchanged) -> Answer:
    """Check an answer's fields; `redact` sees every text in it, names as well, before it is cut.

    Raises:
        BadAnswer: a field is of the wrong kind, or holds what is no JSON.
    """
    try:
        # Our own names are no secrets, even where one is the same word.
        document = {name: _storable(said[name], redact) for name in FIELDS if name in said}
        stored = _dumped(document)
    except RecursionError:
        raise BadAnswer("the result file is nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise BadAnswer(f"the result file holds what is no JSON: {error}") from None
    summary = document.get("summary", "")
    if summary is None:
        summary = ""
    if not isinstance(summary, str):
        raise BadAnswer("summary in the result file is not a text")
    return Answer(
        summary=summary[:MAX_SUMMARY],
        document=stored,
        issue_status=_issue_status(document.get("issue_status")),
        error=_error(document.get("error")),
        usage=_usage(document.get("usage")),
    )


def for_event(document: bytes | None, summary: str) -> dict[str, Any] | None:
    """Give what a feed event carries: the whole document, or its summary when that cannot be.

    It is too large, or was kept by a version that took numbers which no event can hold.
    """
    if document is None:
        return None
    if len(document) <= MAX_EVENT_BYTES:
        with contextlib.suppress(ValueError):
            loaded: dict[str, Any] = plain_json.loads(document)
            return loaded
    return {"summary": summary, "truncated": True}


def _issue_status(value: object) -> IssueState | None:
    if value is None:
        return None
    known = ", ".join(state.value for state in IssueState)
    if not isinstance(value, str) or value not in {state.value for state in IssueState}:
        raise BadAnswer(f"issue_status in the result file is not one of: {known}")
    return IssueState(value)


def _error(value: object) -> AgentError | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise BadAnswer("error in the result file is not an object")
    kind, message = value.get("class"), value.get("message", "")
    if kind is not None and kind not in ERROR_CLASSES:
        known = ", ".join(ERROR_CLASSES)
        raise BadAnswer(f"error.class in the result file is not one of: {known}")
    if not isinstance(message, str):
        raise BadAnswer("error.message in the result file is not a text")
    return AgentError(
        FailureClass.OTHER if kind is None else FailureClass(kind),
        message[:MAX_ERROR],
        _moment(value.get("retry_not_before")),
    )


def _moment(value: object) -> datetime | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
        if moment is not None and moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise BadAnswer(
        "error.retry_not_before in the result file is not a moment like 2030-01-31T12:00:00Z"
    )


def _usage(value: object) -> tuple[Usage, ...]:
    try:
        return read_usage(value)
    except BadUsage as error:
        raise BadAnswer(f"{error}, in the result file") from None


def _dumped(document: dict[str, Any]) -> bytes:
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()


def _storable(value: Any, redact: Callable[[str], str]) -> Any:
    """Replace what is not to be kept, and what neither a text column nor jsonb can hold."""
    if isinstance(value, str):
        return redact(_storable_text(value))
    if isinstance(value, list | tuple):
        return [_storable(item, redact) for item in value]
    if isinstance(value, dict):
        return {
            redact(_storable_text(str(key))): _storable(item, redact) for key, item in value.items()
        }
    return value


def _storable_text(text: str) -> str:
    """Replace NUL and lone surrogates."""
    if text.isascii() and "\x00" not in text:
        return text
    return "".join(
        _REPLACEMENT if char == "\x00" or "\ud800" <= char <= "\udfff" else char for char in text
    )
