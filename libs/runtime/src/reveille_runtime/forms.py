"""What items of a batch have in common, sent to the database once.

Of a burst most rows are alike but for who they are, and each element of an array costs as much as
another. The statement joins a row's own columns to its form's, by the form's place.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

I = TypeVar("I")  # noqa: E741 - an item


def forms_of(
    items: Sequence[I], shared: Callable[[I], Hashable]
) -> tuple[Sequence[I], Sequence[int]]:
    """Give the first item of each form, and for each item its form's place, counted from 1."""
    places: dict[Hashable, int] = {}
    firsts: list[I] = []
    place_of: list[int] = []
    for item in items:
        place = places.setdefault(shared(item), len(firsts) + 1)
        if place > len(firsts):
            firsts.append(item)
        place_of.append(place)
    return firsts, place_of
