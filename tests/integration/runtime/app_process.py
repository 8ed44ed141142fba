"""A whole small service, run as a program by test_app.py."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from reveille.events.v1 import event_service_pb2 as events
from reveille.events.v1 import event_service_pb2_grpc as events_grpc
from reveille_runtime import app as runtime_app
from reveille_runtime.app import App, main
from reveille_runtime.config import ServiceSettings
from reveille_runtime.lifecycle import Background, Loop
from reveille_runtime.server import draining_error


class Settings(ServiceSettings):
    """What a test may ask of this service."""

    service_name: ClassVar[str] = "autopilot"

    behave: str = "serve"


def note(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Events(events_grpc.EventServiceServicer):
    """Streams until the server drains."""

    def __init__(self, app: App[Settings]) -> None:
        self.app = app

    async def WatchEvents(
        self, request: events.WatchEventsRequest, context: Any
    ) -> AsyncIterator[events.WatchEventsResponse]:
        yield events.WatchEventsResponse()
        await self.app.server.draining.wait()
        note("watch ended")
        raise draining_error()


@asynccontextmanager
async def resource() -> AsyncIterator[None]:
    note("resource opened")
    try:
        yield
    finally:
        note("resource closed")


@asynccontextmanager
async def stuck() -> AsyncIterator[None]:
    yield
    await asyncio.Event().wait()


class Stuck:
    """A component that never ends its stop."""

    name = "stuck"

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def stop(self) -> None:
        await asyncio.Event().wait()


async def build(app: App[Settings]) -> None:
    await app.resource(resource())
    note(f"address {app.server.address}")
    if app.settings.behave == "fail":
        raise RuntimeError("cannot build")
    if app.settings.behave == "wait":
        await asyncio.Event().wait()
    app.server.add(events_grpc.add_EventServiceServicer_to_server, Events(app))

    async def claim() -> None:
        note("claimed")

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            note("worker ended")

    async def close_front_end() -> None:
        note("front end closed")
        if app.settings.behave == "stick":
            raise RuntimeError("cannot close")

    if app.settings.behave == "stick":
        # Long enough for a test.
        vars(runtime_app)["_RESOURCES"] = 0.6
        await app.resource(stuck())
        app.works(Stuck())
    claimer = Loop("claimer", claim, interval=3600)
    app.claims(claimer)
    app.works(Background("worker", work))
    app.on_drain(close_front_end)


if __name__ == "__main__":
    main(Settings, build)
