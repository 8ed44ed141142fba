"""The provider table: one row a sender. A new sender is a row and its vectors in the tests.

Rows stand in one module for each sort of sender; what they share is in `schemes`, and the few
things that no row can say are functions in `special` and `handshakes`.
"""

from __future__ import annotations

from collections.abc import Mapping

from reveille_webhook.domain.provider import Provider
from reveille_webhook.providers import code, people, platforms

PROVIDERS: Mapping[str, Provider] = {
    row.name: row for row in (*code.ROWS, *people.ROWS, *platforms.ROWS)
}
