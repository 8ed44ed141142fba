"""Room for bodies: of all that come in at once only so much is in memory.

Small ones take none of it. How many of them there can be is bounded by the connections, and whoever
sends large ones without end shall not cost them their place.
"""

from __future__ import annotations

SMALL_BODY = 64 * 1024


class Crowded(Exception):
    """There is no room for the body now."""


class Room:
    """Bytes that bodies may take together, of which one sender may have half."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._taken = 0
        self._senders: dict[str, int] = {}

    @property
    def taken(self) -> int:
        """What is taken now."""
        return self._taken

    def place(self, sender: str) -> Place:
        """Give a place for one body, of which nothing is taken yet."""
        return Place(self, sender)

    def take(self, sender: str, size: int) -> bool:
        """Take some more for a sender, if there is as much."""
        own = self._senders.get(sender, 0) + size
        if self._taken + size > self._size or own > self._size // 2:
            return False
        self._taken += size
        self._senders[sender] = own
        return True

    def give_back(self, sender: str, size: int) -> None:
        """Take no longer what was taken."""
        self._taken -= size
        self._senders[sender] -= size
        if not self._senders[sender]:
            del self._senders[sender]


class Place:
    """What one body takes of a room."""

    __slots__ = ("_room", "_sender", "_size")

    def __init__(self, room: Room, sender: str) -> None:
        self._room = room
        self._sender = sender
        self._size = 0

    def hold(self, size: int) -> None:
        """Grow to what a body needs by now.

        Raises:
            Crowded: there is no room for it.
        """
        if size <= SMALL_BODY or size <= self._size:
            return
        if not self._room.take(self._sender, size - self._size):
            raise Crowded
        self._size = size

    def leave(self) -> None:
        """Make room for others."""
        if self._size:
            self._room.give_back(self._sender, self._size)
            self._size = 0
