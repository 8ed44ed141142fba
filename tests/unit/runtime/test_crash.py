"""Crash points: nothing unless named, and then a death that runs no clean-up."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from reveille_runtime import crash

PROGRAM = """
import atexit, sys
from reveille_runtime.crash import crash_point, declare
declare("test.one", "test.two")
atexit.register(lambda: print("cleaned", flush=True))
try:
    for name in ("test.one", "test.two", "test.one"):
        crash_point(name)
        print(name, flush=True)
finally:
    print("finally", flush=True)
"""


def run(**environment: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.split()


def test_without_the_variable_every_point_is_passed() -> None:
    assert run() == (0, ["test.one", "test.two", "test.one", "finally", "cleaned"])


def test_the_named_point_kills_without_any_clean_up() -> None:
    assert run(REVEILLE_CRASH_POINT="test.two") == (137, ["test.one"])


def test_hits_can_be_passed_first() -> None:
    code, output = run(REVEILLE_CRASH_POINT="test.one", REVEILLE_CRASH_AFTER="1")
    assert (code, output) == (137, ["test.one", "test.two"])
    code, output = run(REVEILLE_CRASH_POINT="test.one", REVEILLE_CRASH_AFTER="2")
    assert (code, output[-1]) == (0, "cleaned")


def test_declared_points_are_listed_once_and_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash, "_declared", set())
    assert crash.declare("b.second", "a.first") == ("b.second", "a.first")
    crash.declare("a.first")
    assert crash.all_crash_points() == ["a.first", "b.second"]


def test_a_misspelt_variable_is_refused_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash, "_declared", {"test.one"})
    monkeypatch.delenv(crash.POINT_VARIABLE, raising=False)
    crash.check_environment()
    monkeypatch.setenv(crash.POINT_VARIABLE, "test.one")
    crash.check_environment()
    monkeypatch.setenv(crash.POINT_VARIABLE, "test.oen")
    with pytest.raises(crash.UnknownCrashPoint):
        crash.check_environment()


def point_constants(list_file: Path) -> dict[str, str]:
    """The constants of a service's list, by name, and each point it writes out, by itself."""
    tree = ast.parse(list_file.read_text())
    named: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value.count(".") >= 2 and " " not in node.value:
                named[node.value] = node.value
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Name):
                named[target.id] = str(node.value.value)
    return named


def fitting(template: ast.JoinedStr, constants: dict[str, str]) -> set[str]:
    """The declared points that a computed name can be; the template itself when there is none."""
    pattern = "".join(
        re.escape(str(part.value)) if isinstance(part, ast.Constant) else "[a-z_]+"
        for part in template.values
    )
    return {name for name in constants.values() if re.fullmatch(pattern, name)} or {pattern}


def called_points(source: str, constants: dict[str, str]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        function, point = node.func, node.args[0]
        name = function.attr if isinstance(function, ast.Attribute) else ""
        name = function.id if isinstance(function, ast.Name) else name
        if name != "crash_point":
            continue
        if isinstance(point, ast.Constant):
            found.add(str(point.value))
        elif isinstance(point, ast.JoinedStr):
            found |= fitting(point, constants)
        elif isinstance(point, ast.Attribute):
            found.add(constants.get(point.attr, point.attr))
        elif isinstance(point, ast.Name):
            found.add(constants.get(point.id, point.id))
    return found


def test_every_point_that_services_call_is_declared_and_every_declared_one_is_called() -> None:
    root = Path(__file__).parents[3] / "services"
    for service in sorted(root.iterdir()):
        sources = sorted((service / "src").rglob("*.py"))
        constants: dict[str, str] = {}
        for path in sources:
            if path.name == "crash_points.py":
                constants |= point_constants(path)
        called = {point for path in sources for point in called_points(path.read_text(), constants)}
        assert called == set(constants.values()), service.name
