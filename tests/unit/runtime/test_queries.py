"""Named queries: the form of the files, and the errors that name file and line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from reveille_runtime.queries import Query, QueryFileError, all_queries, load_queries, parse_queries

TWO = """\
-- A header of the file, which belongs to no query.

-- name: find_job
-- The registration as its owner declared it.
-- $1 name
SELECT name, paused -- the note stays
FROM jobs
  WHERE name = $1;

-- name: count_jobs
-- For the status page.
SELECT count(*) FROM jobs
"""


def test_a_file_is_split_into_its_queries() -> None:
    found = parse_queries(TWO, "jobs.sql")

    assert list(found) == ["find_job", "count_jobs"]
    assert found["find_job"] == Query(
        "find_job",
        "SELECT name, paused -- the note stays\nFROM jobs\n  WHERE name = $1",
        "The registration as its owner declared it. $1 name",
    )
    assert found["count_jobs"].sql == "SELECT count(*) FROM jobs"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT 1;", "x.sql:1: SQL before the first"),
        ("-- name: Find_Job\n-- why\nSELECT 1", "x.sql:1: 'Find_Job' is not a snake_case name"),
        (
            "-- name: a\n-- why\nSELECT 1;\n-- name: a\n-- why\nSELECT 2",
            "x.sql:4: .* defined twice",
        ),
        ("-- name: a\nSELECT 1;", "x.sql:1: query 'a' does not say why"),
        ("-- name: a\n-- why\n-- name: b\n-- why\nSELECT 1", "x.sql:1: query 'a' is empty"),
        ("\n-- name: a\n-- why\n;", "x.sql:2: query 'a' is empty"),
    ],
)
def test_a_file_out_of_form_names_the_line(text: str, message: str) -> None:
    with pytest.raises(QueryFileError, match=message):
        parse_queries(text, "x.sql")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "query_sample"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "jobs.sql").write_text(TWO, encoding="utf-8")
    (folder / "scopes.sql").write_text("-- name: due\n-- why\nSELECT 1", encoding="utf-8")
    (folder / "again.sql").write_text("-- name: due\n-- why\nSELECT 2", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("query_sample", None)
    return "query_sample"


def test_files_of_a_package_are_one_set(package: str) -> None:
    queries = load_queries(package, "jobs.sql", "scopes.sql")

    assert set(queries) == {"find_job", "count_jobs", "due"}
    assert queries["due"].sql == "SELECT 1"
    with pytest.raises(KeyError, match=r"no query named 'nothing' in query_sample \(jobs.sql"):
        queries["nothing"]


def test_a_name_is_unique_over_a_set(package: str) -> None:
    with pytest.raises(QueryFileError, match="query 'due' is already defined"):
        load_queries(package, "scopes.sql", "again.sql")
    with pytest.raises(QueryFileError, match="query 'due' is already defined"):
        all_queries(package)


def test_a_missing_file_fails_at_import(package: str) -> None:
    with pytest.raises(FileNotFoundError):
        load_queries(package, "absent.sql")
