"""Keep a workspace in a file: the file on the page can be read, and the page tells of triggers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reveille_autopilot.domain.accepting import DEFAULT_BODY_BYTES, MAX_BODY_BYTES
from reveille_cli.apply.document import Problems, load
from reveille_cli.apply.wanted import LISTED, TRIGGER, WORKSPACE, Kind, read_wanted

PAGE = (Path(__file__).resolve().parents[2] / "docs/how-to/apply-a-file.md").read_text("utf-8")


def test_the_file_of_the_page_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "nightly.md").write_text("Look.", encoding="utf-8")
    monkeypatch.setenv("TRIAGE_API_KEY", "a key")
    monkeypatch.setenv("GITHUB_SECRET", "0123456789abcdef")
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    problems = Problems("file.yaml", tmp_path)

    things = read_wanted(load(text, problems), problems)

    assert things[-1].name == "from github"
    assert things[-1].message.webhook.HasField("options")


def test_the_page_names_all_that_a_file_may_say_of_a_trigger() -> None:
    said = {TRIGGER.identity, *(each.key for each in TRIGGER.settings), *TRIGGER.more}

    assert [key for key in sorted(said) if not re.search(rf"\b{key}\b", PAGE)] == []


@pytest.mark.parametrize("kind", [WORKSPACE, *LISTED, TRIGGER], ids=lambda kind: str(kind.key))
def test_the_table_of_the_page_names_all_that_a_thing_may_have(kind: Kind) -> None:
    (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| `{kind.key}` |"))

    may_have = {kind.identity, *(each.key for each in kind.settings), *kind.more}
    assert may_have - set(re.findall(r"`(\w+)`", row)) == set()


def test_the_page_has_the_limits_of_a_body() -> None:
    (line,) = (line for line in PAGE.splitlines() if line.startswith("- `maxBodyBytes`"))

    assert re.findall(r"[\d,]{4,}", line) == [f"{DEFAULT_BODY_BYTES:,}", f"{MAX_BODY_BYTES:,}"]
