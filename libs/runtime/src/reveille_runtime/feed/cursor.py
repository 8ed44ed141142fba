"""Cursors: how far a reader of a feed has come, as an opaque text."""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass

from reveille_runtime.errors import InvalidArgument, OutOfRange

_LAYOUT = struct.Struct(">BQQQ")
_VERSION = 1


class CursorExpired(OutOfRange):
    """The events after the cursor cannot be told completely: reconcile, then resume at the head."""

    def __init__(self, why: str) -> None:
        super().__init__("CURSOR_EXPIRED", why)


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """A position in a feed: everything up to and including it has been delivered for good.

    A transaction id of 0 stands for the beginning: the oldest event that is kept. An epoch of 0
    stands for the current one and is only meaningful together with the beginning.
    """

    epoch: int
    xid: int
    seq: int

    @classmethod
    def beginning(cls, epoch: int = 0) -> Cursor:
        """Give the cursor before the oldest event kept."""
        return cls(epoch, 0, 0)

    @property
    def is_beginning(self) -> bool:
        """Tell whether this cursor asks for everything that is kept."""
        return self.xid == 0

    def encode(self) -> str:
        """Write the cursor as URL-safe text."""
        packed = _LAYOUT.pack(_VERSION, self.epoch, self.xid, self.seq)
        return base64.urlsafe_b64encode(packed).rstrip(b"=").decode("ascii")

    @classmethod
    def decode(cls, text: str) -> Cursor:
        """Read a cursor back.

        Raises:
            InvalidArgument: the text is not one of ours.
        """
        try:
            packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            version, epoch, xid, seq = _LAYOUT.unpack(packed)
        except (binascii.Error, struct.error, ValueError):
            version = None
        if version != _VERSION:
            raise InvalidArgument.of("cursor", "not a cursor of this feed", "INVALID_CURSOR")
        return cls(epoch, xid, seq)
