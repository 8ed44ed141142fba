"""The stage `payload`: everything that the agent gets to read, put into its folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from reveille_heartbeat.adapters.contract import not_started
from reveille_heartbeat.crash_points import PAYLOAD_WRITTEN
from reveille_heartbeat.domain.document import build, dump, dump_in_steps
from reveille_heartbeat.domain.values import Payload
from reveille_heartbeat.pipeline.context import Parts, RunContext, SetupFailed
from reveille_runtime.backoff import Backoff
from reveille_runtime.crash import crash_point
from reveille_runtime.errors import DomainError, ResourceExhausted, Unavailable
from reveille_runtime.sqlstate import is_transient

# Bytes that are worth a thread of their own; less is written sooner than one is woken.
_LARGE = 262_144
_AGAIN = Backoff(first=0.2, longest=10.0)


async def payload(context: RunContext, parts: Parts) -> None:
    """Write it; an attempt that was begun before has it already."""
    if context.resumed:
        return
    words = context.loaded.words
    body = await _body(context, parts, words.payload)
    if words.size + len(body) > _LARGE:
        # One after the other: each keeps a processor busy, and is in memory several times.
        async with parts.large_payload:
            context.document = await asyncio.to_thread(_put, context, body, dump_in_steps)
    else:
        context.document = _put(context, body, dump)
    # Its agent may be at work for hours, and needs no copy of it here.
    words.forget()
    crash_point(PAYLOAD_WRITTEN)


def _put(
    context: RunContext, body: bytes, write: Callable[[Mapping[str, Any]], bytes]
) -> Mapping[str, Any]:
    """Put it into the agent's folder; gives it for an agent that reads no files."""
    loaded, spool = context.loaded, context.spool
    words = loaded.words
    files = context.adapter is not None and context.adapter.files
    document = build(
        run=loaded.run,
        wakeup=loaded.wakeup,
        prompt=words.prompt,
        agent=loaded.agent,
        issue=loaded.issue,
        payload=words.payload,
        body=body,
        body_path=spool.body_path(body) if files else "",
        joined=words.joined,
        comments=words.comments,
        left_out=words.left_out,
    )
    if not files:
        return document
    try:
        spool.prepare(write(document), body)
    except OSError as error:
        end = not_started("the payload could not be written", error)
        raise SetupFailed(end.message, end.kind) from error
    return {}


async def _body(context: RunContext, parts: Parts, payload: Payload) -> bytes:
    """Give the body, from the gateway if it was too large to travel.

    A gateway that is away is asked again until the attempt is to end. Until then its silence is not
    the agent's, which has not begun.
    """
    if payload.body or not payload.delivery_id:
        return payload.body
    attempt = 0
    while True:
        context.held.check()
        try:
            return await parts.fetch_body(payload.delivery_id)
        except (Unavailable, ResourceExhausted) as error:
            attempt += 1
            await _tell_of_waiting(context, parts, attempt, error)
        except DomainError as error:
            raise SetupFailed(
                f"the body of delivery {payload.delivery_id} cannot be had: {error.message}"
            ) from error
        try:
            async with asyncio.timeout(_pause(context, attempt)):
                await context.stop.wait()
        except TimeoutError:
            continue
        raise SetupFailed("the attempt was ended before its payload could be had")


async def _tell_of_waiting(
    context: RunContext, parts: Parts, attempt: int, error: DomainError
) -> None:
    """Bring a sign of life, and the first time say why; what fails is made good by the next."""
    try:
        await parts.signs.heard(context.lease, 0.0)
        if attempt == 1:
            message = (
                f"the gateway cannot give the payload now, and is asked again: {error.message}"
            )
            await parts.words.event(context.lease, "run.payload_awaited", message, {})
    except Exception as trouble:
        if not is_transient(trouble):
            raise


def _pause(context: RunContext, attempt: int) -> float:
    """Give the time until the gateway is asked again, and a sign of life brought."""
    pause = _AGAIN.delay(attempt, context.run_id)
    idle = context.loaded.agent.idle_timeout.total_seconds()
    return min(pause, idle / 3) if idle > 0 else pause
