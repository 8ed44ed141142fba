"""What an adapter tells is kept within bounds, every cut is marked, and secrets are blanked out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reveille_heartbeat.domain.bounds import bounded, bounded_progress, bounded_text

LOOP: dict[str, Any] = {}
LOOP["again"] = [LOOP]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        ("a\x00b\ud800", "a\ufffdb?"),
        ({1: (1, 2)}, {"1": [1, 2]}),
        (b"raw", "b'raw'"),
        ("x" * 16_384, "x" * 16_384),
        ("x" * 16_390, "x" * 16_384 + "… [6 more characters]"),
        (list(range(52)), [*range(50), "… [2 more items]"]),
        (LOOP, {"again": ["[circular]"]}),
        ([[[[[[[1]]]]]]], [[[[[["[too deep]"]]]]]]),
    ],
)
def test_values_are_bounded(given: object, kept: object) -> None:
    assert bounded(given) == kept
    json.dumps(bounded(given), allow_nan=False)


def test_the_same_thing_twice_is_no_circle() -> None:
    part = {"a": 1}
    assert bounded([part, part]) == [part, part]


def test_an_object_has_a_hundred_keys_at_most() -> None:
    kept = bounded({str(at): at for at in range(103)})
    assert len(kept) == 101
    assert kept["…"] == "[3 more keys]"


def test_secrets_are_blanked_out_before_anything_is_cut() -> None:
    def redact(text: str) -> str:
        return text.replace("sesame-open-now", "*" * 15)

    kept = bounded(
        {"sesame-open-now": ["say sesame-open-now", {"deep": "sesame-open-now"}]}, redact
    )
    assert kept == {"*" * 15: ["say " + "*" * 15, {"deep": "*" * 15}]}
    long = bounded("x" * 16_380 + "sesame-open-now", redact)
    assert long == "x" * 16_380 + "****" + "… [11 more characters]"
    assert bounded_progress({"message": "sesame-open-now"}, redact) == {"message": "*" * 15}


def test_progress_has_four_parts_of_bounded_length() -> None:
    told = {"phase": "p" * 100, "message": "m" * 200, "tool": "", "snippet": "s" * 300, "more": "x"}
    assert {name: len(text) for name, text in bounded_progress(told).items()} == {
        "phase": 60,
        "message": 180,
        "snippet": 220,
    }


def test_a_text_is_cut_at_its_bound() -> None:
    assert bounded_text("abcdef", 3) == "abc… [3 more characters]"
