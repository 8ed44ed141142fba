"""Bodies that come compressed, read back within a bound: a bomb costs what its cap costs."""

from __future__ import annotations

import zlib

import brotli

CODINGS = frozenset({"gzip", "x-gzip", "deflate", "br"})
_PIECE = 64 * 1024
# Each costs a reader; whoever writes a body in blocks needs no more for the largest.
_MOST_MEMBERS = 1000


class TooLarge(Exception):
    """It is larger than its cap once it is read back."""


class Broken(Exception):
    """It is not what its coding says."""


def inflate(body: bytes, coding: str, cap: int) -> bytes:
    """Read a body back.

    Raises:
        TooLarge, Broken: see there.
    """
    if coding == "br":
        return _brotli(body, cap)
    if coding == "deflate":
        # What is called deflate comes with zlib's frame, or bare.
        try:
            return _zlib(body, cap, zlib.MAX_WBITS)
        except Broken:
            return _zlib(body, cap, -zlib.MAX_WBITS)
    return _zlib(body, cap, zlib.MAX_WBITS | 16)


def _zlib(body: bytes, cap: int, window: int) -> bytes:
    whole = bytearray()
    rest = memoryview(body)
    members = 0
    try:
        while rest:
            reader = zlib.decompressobj(window)
            members += 1
            if members > _MOST_MEMBERS:
                raise Broken
            while not reader.eof:
                # By the piece on this side too: what a reader leaves over it copies.
                given = rest[:_PIECE]
                piece = reader.decompress(given, _PIECE)
                left = reader.unused_data if reader.eof else reader.unconsumed_tail
                rest = rest[len(given) - len(left) :]
                whole += piece
                if len(whole) > cap:
                    raise TooLarge
                if not piece and not given and not reader.eof:
                    raise Broken
            # A gzip body may have several members, one after another.
            if window < zlib.MAX_WBITS | 16 and rest:
                raise Broken
    except zlib.error as error:
        raise Broken from error
    return bytes(whole)


def _brotli(body: bytes, cap: int) -> bytes:
    reader = brotli.Decompressor()
    whole = bytearray()
    rest = body
    try:
        while not reader.is_finished():
            piece = reader.process(rest, output_buffer_limit=_PIECE)
            rest = b""
            whole += piece
            if len(whole) > cap:
                raise TooLarge
            if not piece and reader.can_accept_more_data():
                raise Broken
    except brotli.error as error:
        raise Broken from error
    return bytes(whole)
