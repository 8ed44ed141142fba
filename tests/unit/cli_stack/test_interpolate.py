"""Variables of a compose file."""

from __future__ import annotations

import pytest

from reveille_cli.stack.errors import ComposeInvalid
from reveille_cli.stack.interpolate import interpolate, variables_in

VARIABLES = {"SET": "value", "EMPTY": "", "PORT": "8080"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("$SET", "value"),
        ("${SET}", "value"),
        ("a${SET}b$SET.c", "avalueb" + "value.c"),
        ("$MISSING", ""),
        ("${MISSING}", ""),
        ("${MISSING:-other}", "other"),
        ("${EMPTY:-other}", "other"),
        ("${EMPTY-other}", ""),
        ("${MISSING-other}", "other"),
        ("${SET:-other}", "value"),
        ("${SET:+other}", "other"),
        ("${EMPTY:+other}", ""),
        ("${EMPTY+other}", "other"),
        ("${MISSING+other}", ""),
        ("${SET:?needed}", "value"),
        ("${EMPTY?needed}", ""),
        ("${MISSING:-}", ""),
        ("${A:-http://127.0.0.1:${B:-1}}/x", "http://127.0.0.1:1/x"),
        ("${A:-http://127.0.0.1:${PORT:-1}}", "http://127.0.0.1:8080"),
        ("$$SET and $${SET}", "$SET and ${SET}"),
    ],
)
def test_variables_are_replaced_as_compose_does(text: str, expected: str) -> None:
    assert interpolate(text, VARIABLES) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${MISSING:?name a port}", "name a port"),
        ("${EMPTY:?}", "EMPTY is not set"),
        ("${MISSING?}", "MISSING is not set"),
        ("costs 5$", "a lone"),
        ("${SET", "unclosed"),
        ("${:-x}", "without a name"),
        ("${SET/x/y}", "cannot read"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(ComposeInvalid, match=message):
        interpolate(text, VARIABLES)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("plain", []),
        ("$A:${B}", ["A", "B"]),
        ("x${A:-${B:-1}}:${C-2}y", ["A", "C"]),
        ("$$A $$${B}", ["B"]),
        ("$", []),
    ],
)
def test_variables_that_stand_in_a_text(text: str, names: list[str]) -> None:
    assert variables_in(text) == names
