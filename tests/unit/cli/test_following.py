"""What is followed goes on where it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille_cli.apis import AUTOPILOTS
from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure
from reveille_cli.following import follow


class Breaking:
    """A connection whose streams tell two things each and break; the third is refused."""

    def __init__(self) -> None:
        self.cursors: list[str] = []

    def stream(self, api: Any, method: str, request: Any, timeout: None) -> Iterator[Any]:
        self.cursors.append(request.cursor)
        if len(self.cursors) == 3:
            raise Failure("not_found", "it is gone", ExitCode.NOT_FOUND)
        yield pb.WatchRunsResponse(cursor=f"c-{len(self.cursors)}")
        yield pb.WatchRunsResponse()
        raise Failure("not_serving", "connect again", ExitCode.UNAVAILABLE)


def test_it_goes_on_after_the_last_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reveille_cli.patience.FIRST_PAUSE", 0.0)
    client = Breaking()
    told = follow(client, AUTOPILOTS, "WatchRuns", pb.WatchRunsRequest())  # type: ignore[arg-type]  # all it needs

    assert [next(told).cursor for _ in range(4)] == ["c-1", "", "c-2", ""]
    with pytest.raises(Failure, match="gone"):
        next(told)
    assert client.cursors == ["", "c-1", "c-2"]
