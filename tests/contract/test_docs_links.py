"""What the pages point at is there: files, headings, commands of `reveille` and their flags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from reveille_cli.main import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page
    for page in ROOT.rglob("*.md")
    if not any(part.startswith(".") or part == "node_modules" for part in page.parts)
)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+)$", re.MULTILINE)
_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
# A command goes on to the end of its line, of its substitution, or to the next pipe.
_COMMAND = re.compile(r"(?:^|[\s(`/])reveille ([a-z][^`\n|)&#]*)")
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def slugs(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return {
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        for heading in _HEADING.findall(text)
    }


def links(page: Path) -> Iterator[str]:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in _LINK.findall(text):
        if "://" not in target:
            yield target


def commands(page: Path) -> Iterator[str]:
    """Whatever a page tells to type, one line each."""
    text = page.read_text(encoding="utf-8")
    blocks = [body for language, body in _FENCE.findall(text) if language in {"sh", "console"}]
    for shown in (*blocks, *_CODE.findall(_FENCE.sub("", text))):
        yield from (each.strip() for each in _COMMAND.findall(shown.replace("\\\n", " ")))


def problem_with(command: str) -> str | None:
    """Walk down the nouns and verbs, then look at the flags."""
    here: Any = get_command(app)
    words = command.split()
    while words and hasattr(here, "get_command") and not words[0].startswith("-"):
        word = words.pop(0)
        here = here.get_command(None, word)
        if here is None:
            return f"{word} is not a command"
    known = {flag for parameter in here.params for flag in parameter.opts} | {"--help"}
    unknown = [flag for flag in _FLAG.findall(command) if flag not in known]
    return f"{', '.join(unknown)} is not a flag" if unknown else None


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_a_page_links_to_is_there(page: Path) -> None:
    broken = []
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in slugs(file)):
            broken.append(target)

    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_a_page_tells_to_type_is_a_command(page: Path) -> None:
    problems = {command: problem_with(command) for command in commands(page)}

    assert {command: problem for command, problem in problems.items() if problem} == {}


def test_commands_are_found() -> None:
    found = list(commands(ROOT / "README.md"))

    assert "up --detach" in found
    assert any(each.startswith("triggers create-webhook") for each in found)


def test_a_command_that_does_not_exist_is_told() -> None:
    assert problem_with("triggers paint X") == "paint is not a command"
    assert problem_with("runs list --colour red") == "--colour is not a flag"
    assert problem_with("triggers secrets add X --signing-secret-file F") is None


def test_every_page_can_be_reached_from_the_readme() -> None:
    start = ROOT / "README.md"
    reached, ahead = {start}, [start]
    while ahead:
        page = ahead.pop()
        for target in links(page):
            file = (page.parent / target.partition("#")[0]).resolve()
            if file.suffix == ".md" and file.exists() and file not in reached:
                reached.add(file)
                ahead.append(file)

    assert [name_of(page) for page in PAGES if page not in reached] == []
