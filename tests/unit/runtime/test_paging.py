"""Pages: sizes are coerced, tokens belong to one list."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from uuid import UUID

import pytest

from reveille_runtime.errors import InvalidArgument
from reveille_runtime.paging import MAX_BYTES, _mark, fitting, page_token, read_page

QUERY = ("ListRuns", UUID(int=1), None, "failed")


@pytest.mark.parametrize(("asked", "size"), [(0, 50), (1, 1), (200, 200), (201, 200), (10**9, 200)])
def test_sizes_are_coerced(asked: int, size: int) -> None:
    page = read_page(asked, "", QUERY)

    assert (page.size, page.limit, page.after) == (size, size + 1, None)


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(InvalidArgument) as refused:
        read_page(-1, "", QUERY)

    assert refused.value.violations[0].field == "page_size"


def test_a_token_brings_its_key_back() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)

    token = page_token((moment, UUID(int=2), 3, None), QUERY)

    assert read_page(10, token, QUERY).after == (
        "2026-01-02T03:04:05.000006+00:00",
        str(UUID(int=2)),
        3,
        None,
    )
    assert token.isascii()
    assert "=" not in token


@pytest.mark.parametrize("query", [(*QUERY[:3], "done"), ("ListIssues", *QUERY[1:]), QUERY[:3]])
def test_a_token_of_another_list_is_refused(query: tuple[object, ...]) -> None:
    token = page_token((1,), QUERY)

    with pytest.raises(InvalidArgument) as refused:
        read_page(10, token, query)

    assert refused.value.reason == "INVALID_PAGE_TOKEN"


@pytest.mark.parametrize("token", ["x", "é", "AAAA", "!!!!", "A" * 5])
def test_garbage_is_refused(token: str) -> None:
    with pytest.raises(InvalidArgument):
        read_page(10, token, QUERY)


@pytest.mark.parametrize("body", [b"5", b"[]", b"{}", b"[[1]]", b"[1.5]", b"[" * 100_000])
def test_a_token_that_somebody_made_is_refused(body: bytes) -> None:
    forged = base64.urlsafe_b64encode(_mark(body, QUERY) + body).rstrip(b"=").decode()

    with pytest.raises(InvalidArgument, match="page_token"):
        read_page(0, forged, QUERY)


def test_a_changed_token_is_refused() -> None:
    token = page_token((1, 2), QUERY)
    changed = token[:-2] + ("A" if token[-2] != "A" else "B") + token[-1]

    with pytest.raises(InvalidArgument):
        read_page(10, changed, QUERY)


def test_a_key_of_another_type_is_a_bug() -> None:
    with pytest.raises(TypeError):
        page_token((1.5,), QUERY)


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        ([], 0),
        ([1, 1, 1], 3),
        ([MAX_BYTES], 1),
        ([MAX_BYTES - 1, 1], 2),
        ([MAX_BYTES, 1], 1),
        # What is longer than a page by itself still goes, alone.
        ([MAX_BYTES + 1, 1], 1),
        ([1, MAX_BYTES, 1], 1),
    ],
)
def test_a_page_holds_what_a_message_has_room_for(sizes: list[int], count: int) -> None:
    assert fitting(sizes) == count
