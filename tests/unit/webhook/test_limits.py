"""Counters over a sliding window, and whom they count for."""

from __future__ import annotations

import pytest

from reveille_webhook.domain.client_address import UNKNOWN, client_key, networks
from reveille_webhook.domain.ratelimit import FairSampler, Sampler, SlidingCounters

PROXIES = networks(["10.0.0.0/8", "fd00::/8", "192.0.2.1"])


def test_the_limit_is_allowed_and_then_again_after_the_window() -> None:
    counters = SlidingCounters(3, window=60.0)

    assert [counters.take("a", 0.0) for _ in range(4)] == [0, 0, 0, 60.0]
    assert counters.take("b", 0.0) == 0
    assert counters.take("a", 59.0) > 0
    assert counters.take("a", 120.0) == 0


def test_a_refused_hit_and_a_look_do_not_count() -> None:
    counters = SlidingCounters(1, window=60.0)
    counters.add("a", 0.0)

    waits = {counters.take("a", 30.0) for _ in range(50)} | {counters.check("a", 30.0)}

    assert waits == {30.0}
    assert counters.check("a", 60.5) == 0


def test_old_hits_slide_out() -> None:
    counters = SlidingCounters(10, window=60.0)
    for _ in range(10):
        counters.take("a", 0.0)

    assert counters.take("a", 60.0) > 0
    assert [counters.take("a", 90.0) for _ in range(6)] == [0, 0, 0, 0, 0, 1.0]


@pytest.mark.parametrize(("hits", "moment"), [(10, 5.5), (25, 5.5), (10, 59.5), (10, 60.0)])
def test_who_waits_as_long_as_it_was_told_is_served(hits: int, moment: float) -> None:
    counters = SlidingCounters(10)
    for _ in range(hits):
        counters.add("a", 5.0)

    wait = counters.check("a", moment)

    assert wait >= 1
    assert counters.take("a", moment + wait) == 0


def test_a_hit_that_is_counted_late_forgets_nothing() -> None:
    counters = SlidingCounters(30, window=60.0)
    for _ in range(29):
        counters.add("a", 61.0)

    # A slow request of the window before: its credential is found wrong only now.
    counters.add("a", 59.0)

    assert counters.check("a", 61.0) > 0
    assert counters.check("a", 59.0) > 0


def test_zero_allows_everything_and_keeps_nothing() -> None:
    counters = SlidingCounters(0)

    assert [counters.take("a", 0.0) for _ in range(1000)] == [0] * 1000
    counters.add("a", 0.0)
    assert len(counters) == 0


def test_a_million_keys_take_bounded_room() -> None:
    counters = SlidingCounters(5, most_keys=1000)
    for number in range(1_000_000):
        counters.add(f"key {number}", 0.0)

    assert len(counters) == 1000


def test_when_there_is_no_room_the_key_that_was_quiet_longest_goes() -> None:
    counters = SlidingCounters(2, most_keys=2)
    for key in ("one", "two", "two", "one", "three", "three"):
        counters.add(key, 0.0)

    assert [counters.check(key, 0.0) > 0 for key in ("one", "two", "three")] == [True, False, True]


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("203.0.113.9", None, "203.0.113.9"),
        ("203.0.113.9", "198.51.100.1", "203.0.113.9"),
        ("10.1.1.1", None, "10.1.1.1"),
        ("10.1.1.1", "198.51.100.1", "198.51.100.1"),
        ("10.1.1.1", "192.168.7.7, 198.51.100.1", "198.51.100.1"),
        ("10.1.1.1", "198.51.100.1, 10.2.2.2, 192.0.2.1", "198.51.100.1"),
        ("10.1.1.1", "10.3.3.3, 10.2.2.2", "10.3.3.3"),
        ("10.1.1.1", "198.51.100.1, nonsense", "10.1.1.1"),
        ("10.1.1.1", "nonsense, 10.2.2.2", "10.2.2.2"),
        ("10.1.1.1", "198.51.100.1:4711", "198.51.100.1"),
        ("10.1.1.1", "[2001:db8:1:2::5]:443", "2001:db8:1:2::/64"),
        ("::ffff:10.1.1.1", "::ffff:198.51.100.1", "198.51.100.1"),
        ("2001:db8:1:2:3::4", None, "2001:db8:1:2::/64"),
        ("fd00::1", "2001:db8:9:9::1", "2001:db8:9:9::/64"),
        ("fe80::1%eth0", None, "fe80::/64"),
        ("", "198.51.100.1", UNKNOWN),
    ],
)
def test_the_last_hop_that_is_not_ours_is_the_client(
    peer: str, forwarded: str | None, client: str
) -> None:
    headers = [] if forwarded is None else [(b"x-forwarded-for", forwarded.encode())]

    assert client_key(peer, headers, PROXIES) == client


def test_several_forwarding_headers_are_one_list() -> None:
    headers = [
        (b"x-forwarded-for", b"198.51.100.1"),
        (b"x-forwarded-for", b"198.51.100.2, 10.2.2.2"),
    ]

    assert client_key("10.1.1.1", headers, PROXIES) == "198.51.100.2"


def test_what_is_no_network_is_refused() -> None:
    with pytest.raises(ValueError, match="does not appear to be"):
        networks(["ten dot something"])


def test_of_a_flood_a_sample_is_kept() -> None:
    sampler = Sampler(3, one_in=10)

    kept = [sampler.keeps("a", 0.0) for _ in range(3 + 40)]

    assert kept.count(True) == 3 + 4
    assert sampler.keeps("b", 0.0)


def test_a_sender_that_floods_costs_the_others_nothing() -> None:
    sampler = FairSampler(3, one_in=1000)

    flood = [sampler.keeps("hook", "one", 0.0) for _ in range(100)]
    others = [sampler.keeps("hook", f"other {number}", 0.0) for number in range(5)]
    again = [sampler.keeps("hook", f"other {number}", 0.0) for number in range(5)]

    assert (flood.count(True), flood[:3]) == (3, [True] * 3)
    assert others == [True] * 3 + [False] * 2
    assert again == [False] * 5
    assert sampler.keeps("another hook", "one", 0.0)
    assert sampler.keeps("hook", "other 0", 120.0)


def test_a_sender_of_whom_nothing_was_kept_is_not_known_for_it() -> None:
    sampler = FairSampler(1)

    assert [sampler.keeps("hook", sender, 5.0) for sender in "abc"] == [True, True, False]
    assert len(sampler) == 2


def test_a_million_senders_take_bounded_room_and_bounded_places() -> None:
    sampler = FairSampler(5, one_in=100, most_senders=1000)

    kept = [sampler.keeps("hook", f"sender {number}", 0.0) for number in range(1_000_000)]

    assert kept.count(True) <= 5 + 5 + 1_000_000 // 100
    assert len(sampler) <= 1000


def test_where_all_is_kept_senders_do_not_matter() -> None:
    sampler = FairSampler(0)

    assert all(sampler.keeps("hook", "one", 0.0) for _ in range(1000))
