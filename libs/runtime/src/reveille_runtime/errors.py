"""What a call can refuse, in the words of the domain.

Pure Python: rules and use cases raise these, and one interceptor turns them into a status. A skip
is never an error; an error is for a call that did nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One field of a request that cannot be accepted, and why."""

    field: str
    description: str
    reason: str = ""


class DomainError(Exception):
    """The call did nothing; `reason` is the machine's word for it, `message` the reader's."""

    def __init__(
        self, reason: str, message: str = "", metadata: Mapping[str, str] | None = None
    ) -> None:
        self.reason = reason
        self.message = message or reason.lower().replace("_", " ")
        self.metadata: Mapping[str, str] = dict(metadata or {})
        super().__init__(f"{reason}: {self.message}")


class InvalidArgument(DomainError):
    """The request itself is wrong, whatever the state of the system."""

    def __init__(
        self,
        violations: Sequence[FieldViolation] = (),
        *,
        reason: str = "",
        message: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self.violations = tuple(violations)
        first = next((v.reason for v in self.violations if v.reason), "INVALID_FIELD")
        text = "; ".join(f"{v.field}: {v.description}" for v in self.violations)
        super().__init__(reason or first, message or text, metadata)

    @classmethod
    def of(cls, field: str, description: str, reason: str = "INVALID_FIELD") -> InvalidArgument:
        """Name the one field that is wrong."""
        return cls((FieldViolation(field, description, reason),))


class OutOfRange(DomainError):
    """A position (cursor, page token) lies where nothing can be read any more."""


class NotFound(DomainError):
    """No such thing, or none that this caller may know of."""


class AlreadyExists(DomainError):
    """Something else already has that key."""


class FailedPrecondition(DomainError):
    """The state of the thing forbids it; the same call cannot succeed until that changes."""


class Aborted(DomainError):
    """Somebody else was first; read again, decide again."""


class PermissionDenied(DomainError):
    """The caller is known and may not."""


class Unauthenticated(DomainError):
    """The caller is not known: no credential, or one that does not hold."""


class _RetryLater(DomainError):
    """An error that may say when the next try makes sense."""

    def __init__(
        self,
        reason: str,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        *,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(reason, message, metadata)
        self.retry_after = retry_after


class ResourceExhausted(_RetryLater):
    """A queue or a quota is full."""


class Unavailable(_RetryLater):
    """A part that is needed cannot be reached or decided with just now."""
