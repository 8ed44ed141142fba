"""Room for bodies: bounded together and for each sender, and none of it for small ones."""

from __future__ import annotations

from reveille_webhook.domain.room import SMALL_BODY, Room

LARGE = SMALL_BODY + 1


def test_small_bodies_take_nothing_and_always_fit() -> None:
    room = Room(0)
    place = room.place("one", 0)

    assert [place.holds(size) for size in (0, 1, SMALL_BODY)] == [True] * 3
    assert not place.holds(LARGE)
    assert room.taken == 0


def test_a_body_takes_what_it_has_by_now_and_gives_all_of_it_back() -> None:
    room = Room(10 * LARGE)
    place = room.place("one", 0)

    for size in (10, LARGE, LARGE, 2 * LARGE):
        assert place.holds(size)
    assert room.taken == 2 * LARGE
    for _ in range(2):
        place.leave()
        assert room.taken == 0


def test_no_sender_has_more_than_half() -> None:
    room = Room(4 * LARGE)
    one, two, three = room.place("one", 0), room.place("one", 0), room.place("one", 0)
    other, third = room.place("other", 0), room.place("third", 0)

    assert one.holds(LARGE)
    assert two.holds(LARGE)
    assert not three.holds(LARGE)
    assert other.holds(2 * LARGE)
    assert not third.holds(LARGE)
    one.leave()
    assert third.holds(LARGE)
    assert room.taken == 4 * LARGE
    for place in (two, three, other, third):
        place.leave()
    assert (room.taken, room._senders) == (0, {})
