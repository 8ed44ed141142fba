"""What this package raises when an expression or a time zone is not accepted."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """The machine reasons a refusal can carry."""

    INVALID_CRON = "invalid_cron"
    INVALID_TIMEZONE = "invalid_timezone"


class CronError(ValueError):
    """An expression or a zone name was refused.

    Attributes:
        reason: The machine reason, for API answers.
        field: The part at fault: `minute`, `hour`, `day_of_month`, `month`, `day_of_week`,
            `expression` when no single field is, or `time_zone`.
        message: What is wrong, in one sentence without a full stop.
        hint: The accepted way to say it.
    """

    def __init__(self, *, reason: Reason, field: str, message: str, hint: str) -> None:
        super().__init__(f"{field}: {message}; {hint}")
        self.reason = reason
        self.field = field
        self.message = message
        self.hint = hint


def invalid_cron(field: str, message: str, hint: str) -> CronError:
    """Build the refusal of an expression."""
    return CronError(reason=Reason.INVALID_CRON, field=field, message=message, hint=hint)


def quoted(text: str) -> str:
    """Quote a piece of the caller's text for a message, cut to a readable length."""
    return ascii(text if len(text) <= 32 else f"{text[:29]}...")
