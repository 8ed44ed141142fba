"""The check without recursion says what the parser would say, and goes as deep as a body does."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reveille_webhook.domain.json_syntax import is_json

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
PIECES = st.sampled_from(
    [*'[]{},:"\\/ \t\n\r\f-+.eE019u', "true", "null", "NaN", "-Infinity", '"a"', '"a":', "\\u00e9"]
)


def parses(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@given(document=DOCUMENTS, indent=st.sampled_from([None, 1]), ascii_only=st.booleans())
def test_every_document_is_json(document: object, indent: int | None, ascii_only: bool) -> None:
    assert is_json(json.dumps(document, indent=indent, ensure_ascii=ascii_only))


@given(text=st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=20))
def test_it_agrees_with_the_parser(text: str) -> None:
    assert is_json(text) == parses(text)


@given(document=DOCUMENTS, data=st.data(), piece=PIECES | st.just(""))
def test_it_agrees_with_the_parser_about_documents_with_a_fault(
    document: object, data: st.DataObject, piece: str
) -> None:
    text = json.dumps(document)
    at = data.draw(st.integers(0, len(text) - 1))
    faulty = text[:at] + piece + text[at + 1 :]

    assert is_json(faulty) == parses(faulty)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", False),
        ("[1,]", False),
        ('{"a":1,}', False),
        ('{"a":1,2}', False),
        ('{"a" 1}', False),
        ("[}", False),
        ("]", False),
        ("[1 2]", False),
        ("01", False),
        ("[] []", False),
        ('"\x01"', False),
        ('"\\x"', False),
        (' {"a": [1, {"b": -0.5e+3}, "\\u00e9\\n"], "c": {}} \n', True),
        ("[" * 500_000 + "]" * 500_000, True),
        ("[" * 500_000 + "]" * 499_999, False),
        ('{"a":[' * 200_000 + "]}" * 200_000, True),
        ('{"a":[' * 200_000 + "}]" * 200_000, False),
        ('[["' + "a" * 1_000_000, False),
        ('[["' + "\\n" * 500_000, False),
    ],
    ids=range(19),
)
def test_what_is_json_and_what_is_not(text: str, expected: bool) -> None:
    assert is_json(text) is expected
