"""Bodies that come compressed, read back within a bound: a bomb costs what its cap costs."""

from __future__ import annotations

import zlib

import brotli

CODINGS = frozenset({"gzip", "x-gzip", "deflate", "br"})
_PIECE = 64 * 1024


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
    rest = body
    try:
        while rest:
            reader = zlib.decompressobj(window)
            while not reader.eof:
                piece = reader.decompress(rest, _PIECE)
                rest = reader.unconsumed_tail
                whole += piece
                if len(whole) > cap:
                    raise TooLarge
                if not piece and not rest and not reader.eof:
                    raise Broken
            # A gzip body may have several members, one after another.
            rest = reader.unused_data
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
