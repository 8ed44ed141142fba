"""The house rules that no linter knows, held against every file of ours."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "libs" / "contracts" / "src"
SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules"})
MAX_LINES = 350
TEXT_SUFFIXES = frozenset(
    {"", ".cfg", ".json", ".md", ".proto", ".py", ".sh", ".sql", ".toml", ".txt", ".yaml", ".yml"}
)


def files_below(folder: Path) -> Iterator[Path]:
    """Yield what is ours: no generated code, no caches, nothing hidden."""
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry.name in SKIPPED_FOLDERS or entry == GENERATED:
            continue
        if entry.is_dir():
            yield from files_below(entry)
        else:
            yield entry


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


FILES = tuple(files_below(ROOT))
MODULES = tuple(path for path in FILES if path.suffix == ".py")
LIBRARIES = tuple(path for path in MODULES if relative(path).startswith(("libs/", "services/")))
SHIPPED = tuple(path for path in LIBRARIES if not relative(path).startswith("libs/testkit/"))
TESTS = tuple(path for path in MODULES if relative(path).startswith("tests/"))
SQL = tuple(path for path in FILES if path.suffix == ".sql")


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def calls_of(path: Path, *names: str) -> Iterator[str]:
    """Yield where one of `names` is called; a constant 0 only lets other tasks run, and is fine."""
    text = path.read_text(encoding="utf-8")
    if not any(name.rpartition(".")[2] in text for name in names):
        # To write out every call of every module again takes seconds.
        return
    for node in ast.walk(parsed(path)):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in names
            and [ast.unparse(argument) for argument in node.args] != ["0"]
        ):
            yield f"{relative(path)}:{node.lineno}"


def comments_with(path: Path, words: str) -> Iterator[tokenize.TokenInfo]:
    text = path.read_text(encoding="utf-8")
    if words not in text:
        # Most modules; reading one token by token takes long.
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and words in token.string:
            yield token


def sql_without_comments(path: Path) -> str:
    return re.sub(r"--[^\n]*|/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_modules_are_short() -> None:
    lines = {relative(path): path.read_text(encoding="utf-8").count("\n") for path in LIBRARIES}

    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}


def test_modules_say_first_what_they_are() -> None:
    assert [relative(path) for path in MODULES if not ast.get_docstring(parsed(path))] == []


def test_nothing_sleeps_in_the_thread() -> None:
    assert [at for path in MODULES for at in calls_of(path, "time.sleep")] == []


def test_tests_wait_for_signals_and_not_for_time() -> None:
    sleeps = [at for path in TESTS for at in calls_of(path, "asyncio.sleep", "sleep")]

    assert sleeps == []


def test_silenced_type_errors_name_code_and_reason() -> None:
    reasoned = re.compile(r"# type: ignore\[[a-z, -]+\]  # \S.*")

    assert [
        f"{relative(path)}:{token.start[0]}"
        for path in MODULES
        for token in comments_with(path, "type: ignore")
        if not reasoned.fullmatch(token.string)
    ] == []


def test_statements_live_in_sql_files() -> None:
    statement = re.compile(
        r"\s*(SELECT\s.+\sFROM\s|INSERT\s+INTO\s|UPDATE\s.+\sSET\s|DELETE\s+FROM\s)", re.DOTALL
    )

    assert [
        f"{relative(path)}:{node.lineno}"
        for path in SHIPPED
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and statement.match(node.value)
    ] == []


def test_sql_names_its_columns() -> None:
    star = re.compile(r"\b(?:SELECT|RETURNING)\s+(?:\w+\.)?\*", re.IGNORECASE)

    assert [relative(path) for path in SQL if star.search(sql_without_comments(path))] == []


def test_sql_reads_the_movable_clock() -> None:
    # Real time is for the clock itself, and for the feed's epoch, which must never come again.
    real = re.compile(
        r"CREATE (?:OR REPLACE )?FUNCTION (?:clock|feed_current_epoch)\(\).*?\$\$.*?\$\$",
        re.DOTALL,
    )
    clock = re.compile(
        r"\b(?:(?:now|(?:clock|statement|transaction)_timestamp)\(\)|current_timestamp\b)",
        re.IGNORECASE,
    )

    assert [
        relative(path) for path in SQL if clock.search(real.sub("", sql_without_comments(path)))
    ] == []


def test_nothing_depends_on_one_machine() -> None:
    # Split, so that this file does not match itself.
    foreign = re.compile("|".join(("/ho" + "me/", "/ro" + "ot/", "/Us" + "ers/", "index" + "-url")))

    assert [
        relative(path)
        for path in FILES
        if path.suffix in TEXT_SUFFIXES
        and foreign.search(path.read_text(encoding="utf-8", errors="replace"))
    ] == []
