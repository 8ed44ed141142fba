"""Which items are alike, and where their form stands."""

from __future__ import annotations

from reveille_runtime.forms import forms_of


def test_a_form_is_its_first_item_and_has_one_place() -> None:
    items = ["a1", "b1", "a2", "c1", "b2"]
    assert forms_of(items, lambda item: item[0]) == (["a1", "b1", "c1"], [1, 2, 1, 3, 2])
    assert forms_of([], hash) == ([], [])
