"""Compressed bodies: read back within a bound, and nothing that is broken is taken for whole."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reveille_webhook.domain.inflate import CODINGS, Broken, TooLarge, inflate

Pack = Callable[[bytes], bytes]
CAP = 256 * 1024
BODY = b'{"action":"opened"}' * 100


def bare_deflate(body: bytes) -> bytes:
    writer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return writer.compress(body) + writer.flush()


PACKED = [
    ("gzip", gzip.compress),
    ("x-gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", bare_deflate),
    ("br", brotli.compress),
]


@pytest.mark.parametrize(("coding", "pack"), PACKED)
def test_a_body_is_read_back_up_to_its_cap(coding: str, pack: Pack) -> None:
    assert inflate(pack(BODY), coding, len(BODY)) == BODY
    with pytest.raises(TooLarge):
        inflate(pack(BODY), coding, len(BODY) - 1)


@pytest.mark.parametrize(("coding", "pack"), PACKED)
def test_what_is_cut_or_followed_by_something_is_broken(coding: str, pack: Pack) -> None:
    for broken in (pack(BODY)[:-3], pack(BODY) + b"more", b"\xff" * 40):
        with pytest.raises(Broken):
            inflate(broken, coding, CAP)


def test_members_of_gzip_follow_each_other() -> None:
    assert inflate(gzip.compress(b"a") + gzip.compress(b"b"), "gzip", CAP) == b"ab"


@pytest.mark.parametrize(("coding", "pack"), PACKED[2:])
def test_other_codings_have_one_member(coding: str, pack: Pack) -> None:
    with pytest.raises(Broken):
        inflate(pack(b"a") + pack(b"b"), coding, CAP)


def test_members_without_end_are_not_read_one_by_one() -> None:
    blocks = [BODY[at : at + 7] for at in range(0, len(BODY), 7)]

    assert inflate(b"".join(map(gzip.compress, blocks)), "gzip", CAP) == BODY
    with pytest.raises(Broken):
        inflate(gzip.compress(b"") * 100_000, "gzip", CAP)


@pytest.mark.parametrize(("coding", "pack"), PACKED)
def test_a_bomb_costs_what_its_cap_costs(coding: str, pack: Pack) -> None:
    bomb = pack(b"\0" * (64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            inflate(bomb, coding, CAP)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8 * CAP


@given(body=st.binary(max_size=200), coding=st.sampled_from(sorted(CODINGS)))
def test_it_reads_or_says_why_not(body: bytes, coding: str) -> None:
    try:
        assert len(inflate(body, coding, CAP)) <= CAP
    except (Broken, TooLarge):
        return
