"""Why a command did not do what was asked: one value, its exit code, and its two written forms.

With `-o json` the error goes to stdout, where a script reads its JSON, and stderr stays empty:
`{"error": {"reason", "message", "field"?, "violations"?, "metadata"?, "hint"?}}`.
Otherwise stdout stays empty and stderr gets the words.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import typer

from reveille_cli.exits import ExitCode
from reveille_cli.options import OutputFormat
from reveille_cli.stack.errors import NotRunning, StackError
from reveille_cli.terminal import LINES, json_line, visible


@dataclass(frozen=True, slots=True)
class Violation:
    """A field that was refused; `label` is what a person typed it as, where that differs."""

    field: str
    description: str
    reason: str = ""
    label: str = ""

    def __str__(self) -> str:
        return f"{self.label or self.field}: {self.description}"


class Failure(Exception):
    """The command did not do it; `reason` is the machine's word, in lower case."""

    def __init__(
        self,
        reason: str,
        message: str,
        exit_code: ExitCode,
        *,
        hint: str = "",
        violations: tuple[Violation, ...] = (),
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.exit_code = exit_code
        self.hint = hint
        self.violations = violations
        self.metadata = dict(metadata or {})
        # What stands beside the error in JSON: it was made all the same, and shows only now.
        self.beside: dict[str, object] = {}

    def call(self, names: Mapping[str, str]) -> None:
        """Let a person read what was typed for a field, or for what lies within it."""
        self.violations = tuple(
            replace(each, label=_label(each.field, names)) for each in self.violations
        )

    def document(self) -> dict[str, object]:
        """Return the error as `-o json` shows it."""
        error: dict[str, object] = {"reason": self.reason, "message": self.message}
        if len(self.violations) == 1:
            error["field"] = self.violations[0].field
        if self.violations:
            error["violations"] = [
                {"field": each.field, "description": each.description, "reason": each.reason}
                for each in self.violations
            ]
        if self.metadata:
            error["metadata"] = self.metadata
        if self.hint:
            error["hint"] = self.hint
        return {"error": error, **self.beside}

    def lines(self) -> list[str]:
        """Return the error as a person reads it."""
        count = len(self.violations)
        message = self.message if count < 2 else f"{count} fields were refused"
        if count == 1 and message.startswith(f"{self.violations[0].field}: "):
            message = str(self.violations[0])
        lines = [f"error: {message} ({self.reason})"]
        if count > 1:
            lines += [f"  {each}" for each in self.violations]
        if self.hint:
            lines.append(self.hint)
        return lines


def _label(field: str, names: Mapping[str, str]) -> str:
    for path in sorted(names, key=len, reverse=True):
        if field == path or field.startswith((f"{path}.", f"{path}[")):
            return names[path] + field[len(path) :]
    return ""


def refused(field: str, message: str, *, reason: str = "invalid_field", hint: str = "") -> Failure:
    """Refuse one piece of the input, before anything is done."""
    violation = Violation(field, message, reason)
    return Failure(
        reason, f"{field}: {message}", ExitCode.REFUSED, hint=hint, violations=(violation,)
    )


@contextmanager
def reporting(output: OutputFormat) -> Iterator[None]:
    """Turn a failure of the block into its written form and its exit code."""
    try:
        yield
    except StackError as error:
        report(_of_stack(error), output)
    except Failure as failure:
        report(failure, output)


def report(failure: Failure, output: OutputFormat) -> None:
    """Write a failure and leave with its exit code."""
    if output is OutputFormat.JSON:
        sys.stdout.write(json_line(failure.document()) + "\n")
    else:
        sys.stderr.write(visible("\n".join(failure.lines()), LINES) + "\n")
    raise typer.Exit(failure.exit_code) from None


def _of_stack(error: StackError) -> Failure:
    code = ExitCode.UNAVAILABLE if isinstance(error, NotRunning) else error.exit_code
    return Failure(error.reason.lower(), error.message, code, hint=error.hint)
