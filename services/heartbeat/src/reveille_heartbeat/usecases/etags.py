"""Etags: a caller that says what it has read is refused when that is not so any more."""

from __future__ import annotations

from typing import Protocol

from reveille_runtime.errors import Aborted


class Revised(Protocol):
    """A row that counts its changes."""

    @property
    def revision(self) -> int:
        """How often it was changed."""
        ...


def etag_of(row: Revised) -> str:
    """Give what changes with every change."""
    return str(row.revision)


def require_etag(given: str, row: Revised, what: str) -> None:
    """Refuse a stale etag; an empty one is not compared.

    Raises:
        Aborted: it was changed since the caller read it.
    """
    if given and given != etag_of(row):
        raise changed_meanwhile(row, what)


def changed_meanwhile(row: Revised, what: str) -> Aborted:
    """Make the answer to somebody who read an older form of it."""
    return Aborted("ETAG_MISMATCH", f"{what} was changed since you read it", {"etag": etag_of(row)})
