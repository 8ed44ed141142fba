"""The demo leaves nothing behind when all went well, and everything when it did not."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import typer
from rich.console import Console

from reveille_cli.demo import command
from reveille_cli.demo.stage import Examples
from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure

ROOT = Path(__file__).parents[3]


@pytest.fixture
def written() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def messages(written: io.StringIO) -> Console:
    return Console(file=written, width=200)


def test_its_directory_is_gone_after_a_success(messages: Console, written: io.StringIO) -> None:
    with command._own_directory(messages) as folder:
        (folder / "logs").mkdir()

    assert not folder.exists()
    assert written.getvalue() == ""


@pytest.mark.parametrize("problem", [typer.Exit(1), OSError("no room")])
def test_its_directory_stays_after_a_failure_and_is_named(
    messages: Console,
    written: io.StringIO,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    problem: Exception,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    with pytest.raises(type(problem)), command._own_directory(messages) as folder:
        raise problem

    assert folder.is_dir()
    assert f"stays in {folder}: logs/" in written.getvalue()


def test_an_interrupt_leaves_nothing_and_says_so(messages: Console, written: io.StringIO) -> None:
    with pytest.raises(typer.Exit) as caught, command._own_directory(messages) as folder:
        raise KeyboardInterrupt

    assert caught.value.exit_code == ExitCode.INTERRUPTED
    assert not folder.exists()
    assert "nothing is left behind" in written.getvalue()


def test_its_examples_lie_beside_the_compose_file(tmp_path: Path) -> None:
    found = Examples.beside(ROOT / "docker-compose.yml")
    assert (found.agent.name, found.issue.name) == ("triage.py", "issues_opened.json")

    with pytest.raises(Failure, match="is not there") as caught:
        Examples.beside(tmp_path / "docker-compose.yml")

    assert caught.value.exit_code is ExitCode.REFUSED
