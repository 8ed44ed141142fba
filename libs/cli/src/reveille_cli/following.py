"""Following what has no end of its own: a stream is opened again when it breaks or got old."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import Any

from reveille_cli.apis import Api
from reveille_cli.connection import Client
from reveille_cli.failures import Failure
from reveille_cli.patience import Patience

# A service that keeps a stream open for so long is there, also if it had nothing to tell.
HEARD_AFTER = 5.0


def follow(client: Client, api: Api, method: str, request: Any) -> Iterator[Any]:
    """Give a stream's messages for as long as anybody wants them.

    Where messages carry a cursor it goes on after the last one; elsewhere what happens while
    nothing is open is not told.

    Raises:
        Failure: the service refuses, or is away for too long.
    """
    patience = Patience()
    while True:
        opened = monotonic()
        try:
            for news in client.stream(api, method, request, timeout=None):
                patience.answered()
                if cursor := getattr(news, "cursor", ""):
                    request.cursor = cursor
                yield news
        except Failure as failure:
            if monotonic() - opened >= HEARD_AFTER:
                patience.answered()
            patience.bear(failure)
        else:
            return
