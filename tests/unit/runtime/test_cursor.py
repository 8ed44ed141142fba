"""Cursors: opaque text that sorts as the feed does and refuses everything it did not write."""

from __future__ import annotations

import pytest

from reveille_runtime.errors import InvalidArgument
from reveille_runtime.feed import Cursor


@pytest.mark.parametrize(
    "cursor", [Cursor(1, 2, 3), Cursor.beginning(), Cursor(2**53, 2**63, 2**63 - 1)]
)
def test_a_cursor_survives_as_url_safe_text(cursor: Cursor) -> None:
    text = cursor.encode()
    assert Cursor.decode(text) == cursor
    assert text.replace("-", "").replace("_", "").isalnum()


def test_cursors_sort_by_epoch_then_transaction_then_sequence() -> None:
    first, second, third, last = Cursor(1, 9, 9), Cursor(2, 1, 5), Cursor(2, 3, 0), Cursor(2, 3, 1)
    assert sorted([last, first, third, second]) == [first, second, third, last]


@pytest.mark.parametrize(
    "text", ["0", "abc", "ü", "AAAA", Cursor(1, 2, 3).encode() + "A", "A" * 34, " ", "=" * 8]
)
def test_anything_else_is_an_invalid_argument(text: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        Cursor.decode(text)
    assert refused.value.reason == "INVALID_CURSOR"
    assert refused.value.violations[0].field == "cursor"
