"""How our interceptors sit in grpc.aio: stages around a handler, stages around an outgoing call.

A server stage is a context manager around the *behaviour*, unary or streaming, so it sees how the
handler ended, aborts and cancellation included. A client stage prepares a call and may ask to be
told its status; the call itself is handed back at once, because an interceptor that waits for it
keeps a cancelled client from ever reaching the server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import grpc

from reveille_runtime.errors import Unavailable

# A stream is ended after so many seconds, and begins again: at another server if need be, and only
# if its caller may still see what it tells.
STREAM_AGE = 330.0
# Health probes and reflection carry no credentials and are not worth a span.
EXEMPT_SERVICES = ("grpc.health.", "grpc.reflection.")

# Quoted: generic to the type checker, not at run time.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


@dataclass(frozen=True, slots=True)
class RpcCall:
    """One RPC being served. `request` is None when the client streams."""

    method: str
    metadata: Mapping[str, str]
    context: Context
    request: Any


class ServerStage(Protocol):
    """Something that happens around every RPC."""

    def around(self, call: RpcCall) -> AbstractAsyncContextManager[None]:
        """Return the context manager that encloses the handler."""


class ServerChain(grpc.aio.ServerInterceptor):
    """Runs every RPC inside the given stages, the first being the outermost."""

    def __init__(self, stages: Sequence[ServerStage]) -> None:
        self._stages = tuple(stages)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wrap the handler of the method called."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method.removeprefix("/")
        if handler is None or method.startswith(EXEMPT_SERVICES):
            return handler
        metadata = {
            key: value
            for key, value in handler_call_details.invocation_metadata
            if isinstance(value, str)
        }
        return self._wrapped(handler, method, metadata)

    def _wrapped(self, handler: Handler, method: str, metadata: Mapping[str, str]) -> Handler:
        inner: Any = _behaviour(handler)

        async def answer(request: Any, context: Context) -> Any:
            shown = None if handler.request_streaming else request
            call = RpcCall(method, metadata, context, shown)
            return await _inside(self._stages, call, lambda: inner(request, context))

        async def answers(request: Any, context: Context) -> None:
            async def write() -> None:
                replies = inner(request, context)
                if not hasattr(replies, "__aiter__"):
                    await replies
                    return
                # Written here rather than yielded: a cancellation then always lands in this
                # frame, and the handler's generator is closed before the stages end.
                try:
                    async for reply in replies:
                        await context.write(reply)
                finally:
                    await replies.aclose()

            shown = None if handler.request_streaming else request
            call = RpcCall(method, metadata, context, shown)
            await _inside(self._stages, call, lambda: _while_young(write))

        make: Any
        match (handler.request_streaming, handler.response_streaming):
            case (False, False):
                make = grpc.unary_unary_rpc_method_handler
            case (True, False):
                make = grpc.stream_unary_rpc_method_handler
            case (False, True):
                make = grpc.unary_stream_rpc_method_handler
            case _:
                make = grpc.stream_stream_rpc_method_handler
        wrapped: Handler = make(
            answers if handler.response_streaming else answer,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )
        return wrapped


async def _inside(
    stages: Sequence[ServerStage], call: RpcCall, serve: Callable[[], Awaitable[Any]]
) -> Any:
    """Serve a call inside all stages: each sees the refusals of those within as it sees errors."""
    if not stages:
        return await serve()
    async with stages[0].around(call):
        return await _inside(stages[1:], call, serve)


async def _while_young(write: Callable[[], Awaitable[None]]) -> None:
    try:
        async with asyncio.timeout(STREAM_AGE) as age:
            await write()
    except TimeoutError:
        if not age.expired():
            raise
        raise Unavailable(
            "NOT_SERVING", "no stream lasts longer; connect again", retry_after=0.2
        ) from None


def _behaviour(handler: Handler) -> Any:
    for behaviour in (
        handler.unary_unary,
        handler.unary_stream,
        handler.stream_unary,
        handler.stream_stream,
    ):
        if behaviour is not None:
            return behaviour
    raise TypeError("a method handler without a behaviour")


Done = Callable[[grpc.StatusCode, int], None]


@dataclass(frozen=True, slots=True)
class OutgoingCall:
    """A call about to be made. Stages replace fields; metadata keys are lower case."""

    method: str
    timeout: float | None
    metadata: tuple[tuple[str, str | bytes], ...]
    streaming: bool


class ClientStage(Protocol):
    """Something that happens before every outgoing call, and perhaps after it."""

    def opening(self, call: OutgoingCall) -> tuple[OutgoingCall, Done | None]:
        """Return the call to make, and what to tell about its end: its status and end time."""


class ClientChain:
    """Applies client stages to the calls of one channel, and knows which ends are still owed."""

    def __init__(self, stages: Sequence[ClientStage]) -> None:
        self._stages = tuple(stages)
        self._owed: set[asyncio.Task[None]] = set()

    def interceptors(self) -> list[grpc.aio.ClientInterceptor]:
        """Return what a channel takes: grpc.aio wants one object for each kind of call."""
        return [_UnaryUnary(self), _UnaryStream(self), _StreamUnary(self), _StreamStream(self)]

    async def settled(self) -> None:
        """Wait until every finished call has been accounted for."""
        while self._owed:
            await asyncio.gather(*self._owed, return_exceptions=True)

    async def make(
        self,
        continuation: Callable[[grpc.aio.ClientCallDetails, Any], Awaitable[Any]],
        details: grpc.aio.ClientCallDetails,
        request: Any,
        *,
        streaming: bool,
    ) -> Any:
        """Start the call and hand it back at once."""
        method: Any = details.method
        call = OutgoingCall(
            method=(method.decode() if isinstance(method, bytes) else method).removeprefix("/"),
            timeout=details.timeout,
            metadata=tuple(details.metadata or ()),
            streaming=streaming,
        )
        owed: list[Done] = []
        for stage in self._stages:
            call, done = stage.opening(call)
            if done is not None:
                owed.append(done)
        try:
            started = await continuation(
                grpc.aio.ClientCallDetails(
                    method=details.method,
                    timeout=call.timeout,
                    metadata=grpc.aio.Metadata(*call.metadata),
                    credentials=details.credentials,
                    wait_for_ready=details.wait_for_ready,
                ),
                request,
            )
        except BaseException:
            for done in owed:
                done(grpc.StatusCode.CANCELLED, time.time_ns())
            raise
        if owed:
            started.add_done_callback(lambda ended: self._ended(ended, owed))
        return started

    def _ended(self, call: Any, owed: Sequence[Done]) -> None:
        task = asyncio.ensure_future(_tell(call, owed, time.time_ns()))
        self._owed.add(task)
        task.add_done_callback(self._owed.discard)


async def _tell(call: Any, owed: Sequence[Done], ended: int) -> None:
    code = await call.code()
    for done in owed:
        done(code, ended)


class _UnaryUnary(grpc.aio.UnaryUnaryClientInterceptor):
    def __init__(self, chain: ClientChain) -> None:
        self._chain = chain

    async def intercept_unary_unary(
        self, continuation: Any, client_call_details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        return await self._chain.make(continuation, client_call_details, request, streaming=False)


class _UnaryStream(grpc.aio.UnaryStreamClientInterceptor):
    def __init__(self, chain: ClientChain) -> None:
        self._chain = chain

    async def intercept_unary_stream(
        self, continuation: Any, client_call_details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        return await self._chain.make(continuation, client_call_details, request, streaming=True)


class _StreamUnary(grpc.aio.StreamUnaryClientInterceptor):
    def __init__(self, chain: ClientChain) -> None:
        self._chain = chain

    async def intercept_stream_unary(
        self,
        continuation: Any,
        client_call_details: grpc.aio.ClientCallDetails,
        request_iterator: Any,
    ) -> Any:
        return await self._chain.make(
            continuation, client_call_details, request_iterator, streaming=True
        )


class _StreamStream(grpc.aio.StreamStreamClientInterceptor):
    def __init__(self, chain: ClientChain) -> None:
        self._chain = chain

    async def intercept_stream_stream(
        self,
        continuation: Any,
        client_call_details: grpc.aio.ClientCallDetails,
        request_iterator: Any,
    ) -> Any:
        return await self._chain.make(
            continuation, client_call_details, request_iterator, streaming=True
        )
