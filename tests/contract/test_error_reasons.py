"""Every reason that code can raise is one the contract documents."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from reveille.common.v1 import reason_pb2

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path
    for part in ("libs", "services")
    for path in (ROOT / part).glob("*/src/*/**/*.py")
    if "contracts" not in path.parts
)
# Where a reason stands in the arguments of each raiser.
POSITION = {
    "DomainError": 0,
    "OutOfRange": 0,
    "NotFound": 0,
    "AlreadyExists": 0,
    "FailedPrecondition": 0,
    "Aborted": 0,
    "PermissionDenied": 0,
    "Unauthenticated": 0,
    "ResourceExhausted": 0,
    "Unavailable": 0,
    "InvalidArgument.of": 2,
    "FieldViolation": 2,
}
KNOWN = {
    name.removeprefix("ERROR_REASON_") for name in reason_pb2.ErrorReason.DESCRIPTOR.values_by_name
}


def raised(source: str) -> Iterator[tuple[str, int]]:
    """Find the reasons written out in a module, with their lines."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        position = POSITION.get(name)
        if position is None and name.rpartition(".")[2] == "add" and len(node.args) == 3:
            position = 2
        given = [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
        if position is not None and len(node.args) > position:
            given.append(node.args[position])
        if position is None and name != "InvalidArgument":
            continue
        for value in given:
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value:
                yield value.value, node.lineno


def undocumented(source: str) -> list[str]:
    """Name the reasons of a module that the contract does not know."""
    return [f"line {line}: {reason}" for reason, line in raised(source) if reason not in KNOWN]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_raised_reason_is_in_the_contract(path: Path) -> None:
    assert undocumented(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        'NotFound("MADE_UP", "text")',
        'InvalidArgument.of("field", "text", "MADE_UP")',
        'FieldViolation("field", "text", "MADE_UP")',
        'found.add("field", "text", "MADE_UP")',
        'InvalidArgument(violations, reason="MADE_UP")',
    ],
)
def test_a_made_up_reason_is_found(line: str) -> None:
    assert undocumented(line) == ["line 1: MADE_UP"]
