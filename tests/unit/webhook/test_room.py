"""Room for bodies: bounded together and for each sender, and none of it for small ones."""

from __future__ import annotations

import pytest

from reveille_webhook.domain.room import SMALL_BODY, Crowded, Place, Room

LARGE = SMALL_BODY + 1


def holds(place: Place, size: int) -> bool:
    try:
        place.hold(size)
    except Crowded:
        return False
    return True


def test_small_bodies_take_nothing_and_always_fit() -> None:
    room = Room(0)
    place = room.place("one")

    for size in (0, 1, SMALL_BODY):
        place.hold(size)
    with pytest.raises(Crowded):
        place.hold(LARGE)
    assert room.taken == 0


def test_a_body_takes_what_it_has_by_now_and_gives_all_of_it_back() -> None:
    room = Room(10 * LARGE)
    place = room.place("one")

    for size in (10, LARGE, LARGE, 2 * LARGE):
        place.hold(size)
    assert room.taken == 2 * LARGE
    for _ in range(2):
        place.leave()
        assert room.taken == 0


def test_no_sender_has_more_than_half() -> None:
    room = Room(4 * LARGE)
    one, two, three = room.place("one"), room.place("one"), room.place("one")
    other, third = room.place("other"), room.place("third")

    assert holds(one, LARGE)
    assert holds(two, LARGE)
    assert not holds(three, LARGE)
    assert holds(other, 2 * LARGE)
    assert not holds(third, LARGE)
    one.leave()
    assert holds(third, LARGE)
    assert room.taken == 4 * LARGE
    for place in (two, three, other, third):
        place.leave()
    assert (room.taken, room._senders) == (0, {})
