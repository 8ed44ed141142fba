"""The tail of a run that is followed: bounded, in order, each piece once, whoever is slow."""

from __future__ import annotations

from datetime import timedelta

from tests.unit.heartbeat.made import NOW, RUN

from reveille_heartbeat.domain.tail import (
    Happened,
    Moved,
    News,
    Over,
    Place,
    Position,
    Said,
    Tail,
    beyond,
    is_newer,
)
from reveille_heartbeat.domain.values import LogStream

MOVED = Moved(RUN, (1, False, None))


def said(offset: int, data: bytes = b"x" * 100) -> Said:
    return Said(LogStream.STDOUT, offset, data)


def happened(seq: int) -> Happened:
    return Happened(seq, "run.claimed", "", {}, NOW)


def joined(tail: Tail, position: Position | None = None) -> Place:
    place = tail.join(position or Position())
    assert place is not None
    return place


def taken(tail: Tail, place: Place) -> list[News]:
    found = []
    while (news := tail.take(place)) is not None:
        found.append(news)
    return found


def test_what_is_known_is_cut_off_and_what_is_new_moves_the_position() -> None:
    position = Position(event=3, stdout=150)

    assert beyond(happened(3), position) == (None, position)
    assert beyond(happened(4), position) == (happened(4), Position(4, 150))
    assert beyond(said(0), position) == (None, position)
    assert beyond(said(100), position) == (said(150, b"x" * 50), Position(3, 200))
    assert beyond(said(150), position) == (said(150), Position(3, 250))
    stderr = Said(LogStream.STDERR, 0, b"oh")
    assert beyond(stderr, position) == (stderr, Position(3, 150, 2))


def test_every_watcher_takes_everything_at_its_own_pace() -> None:
    tail = Tail(Position(), 10_000)
    fast, slow = joined(tail), joined(tail)
    tail.put([MOVED, happened(1)])
    assert taken(tail, fast) == [MOVED, happened(1)]
    tail.put([said(0), Over()])

    assert taken(tail, slow) == [MOVED, happened(1), said(0), Over()]
    assert taken(tail, fast) == [said(0), Over()]
    assert (tail.held, tail.head) == (0, Position(1, 100))


def test_who_comes_later_joins_only_where_nothing_would_be_missing() -> None:
    tail = Tail(Position(), 10_000)
    first = joined(tail)
    tail.put([said(0), happened(1), said(100)])
    tail.take(first)
    # The first hundred bytes are gone from here.
    assert tail.join(Position()) is None
    late = joined(tail, Position(stdout=100))

    assert taken(tail, late) == [happened(1), said(100)]
    assert taken(tail, first) == [happened(1), said(100)]
    # At the end nobody is promised an end that was told already.
    tail.put([Over()])
    assert tail.join(tail.head) is None


def test_a_full_tail_stays_bounded_by_cutting_off_the_slowest_alone() -> None:
    tail = Tail(Position(), 2_000)
    fast, slow = joined(tail), joined(tail)
    offset = 0
    while not tail.full:
        tail.put([said(offset)])
        offset += 100
        taken(tail, fast)

    assert tail.held < 2_000 + 700
    assert tail.cut() == [slow]
    assert (slow.cut, fast.cut, tail.held, tail.full) == (True, False, 0, False)
    tail.put([said(offset)])
    assert taken(tail, fast) == [said(offset)]


def test_a_watcher_that_leaves_holds_nothing_back() -> None:
    tail = Tail(Position(), 1_000)
    place = joined(tail)
    tail.put([said(0), said(100)])
    assert tail.full
    tail.leave(place)
    assert tail.held == 0


def test_versions_grow_with_everything_that_is_seen() -> None:
    later = NOW + timedelta(seconds=5)
    known = (3, False, NOW)

    assert not is_newer(known, known)
    assert is_newer((4, False, NOW), known)
    assert is_newer((3, True, NOW), known)
    assert is_newer((3, False, later), known)
    assert is_newer((3, False, NOW), (3, False, None))
    assert not is_newer((2, False, NOW), known)
    assert is_newer((1, False, None), None)
