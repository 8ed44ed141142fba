"""The tables that runtime modules need stand in the migrations as the templates have them."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

TEMPLATES = {
    "CREATE TABLE feed (": ("reveille_runtime.feed", "feed_ddl.sql"),
    "CREATE TABLE cursors (": ("reveille_runtime.feed", "cursors_ddl.sql"),
    "CREATE TABLE requests (": ("reveille_runtime", "requests_ddl.sql"),
}


def statements(sql: str) -> list[str]:
    """The statements of a script, without comments and layout."""
    bare = re.sub(r"--[^\n]*", "", sql)
    return [" ".join(part.split()) for part in re.split(r";\s*\n(?=\s*\n|[A-Z])", bare + "\n\n")]


@pytest.mark.parametrize("marker", sorted(TEMPLATES))
def test_migrations_contain_the_template_as_it_stands(marker: str) -> None:
    package, file = TEMPLATES[marker]
    template = resources.files(package).joinpath(file).read_text()
    root = Path(__file__).parents[3] / "services"
    users = [path for path in root.rglob("versions/*.sql") if marker in path.read_text()]
    for path in users:
        present = set(statements(path.read_text()))
        for statement in filter(None, statements(template)):
            assert statement in present, f"{path.name} of {path.parents[1]}: {statement[:80]}"
