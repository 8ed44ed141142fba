"""Errors on the wire: the one place that knows which gRPC status a domain error becomes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import grpc
from google.protobuf import any_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from opentelemetry import trace

from reveille_runtime import logs
from reveille_runtime.errors import (
    Aborted,
    AlreadyExists,
    DomainError,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from reveille_runtime.interceptors.chain import RpcCall
from reveille_runtime.rpc_errors import from_rpc_error
from reveille_runtime.sqlstate import is_transient

ERROR_DOMAIN = "reveille"
STATUS: Mapping[type[DomainError], grpc.StatusCode] = {
    InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
    OutOfRange: grpc.StatusCode.OUT_OF_RANGE,
    NotFound: grpc.StatusCode.NOT_FOUND,
    AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    FailedPrecondition: grpc.StatusCode.FAILED_PRECONDITION,
    Aborted: grpc.StatusCode.ABORTED,
    ResourceExhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Unavailable: grpc.StatusCode.UNAVAILABLE,
    PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
    Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    DomainError: grpc.StatusCode.INTERNAL,
}
DEFAULT_RETRY = 1.0
# Clients refuse trailers above 8 KiB. The message travels twice (percent-encoded, and in the
# details), the details grow by a third in base64: with these bounds the sum stays below it.
_MAX_TEXT = 512
_MAX_INFO = 1500
_MAX_VIOLATIONS = 2000

_log = logs.get_logger(__name__)


class ServerErrors:
    """Turns what a handler raises into a status with details, and logs bugs once."""

    @asynccontextmanager
    async def around(self, call: RpcCall) -> AsyncIterator[None]:
        """Translate; aborts and cancellation pass through."""
        try:
            yield
        except (grpc.aio.AbortError, asyncio.CancelledError, GeneratorExit):
            raise
        except DomainError as error:
            await call.context.abort_with_status(to_grpc_status(error))
        except Exception as error:  # noqa: BLE001 (every bug becomes INTERNAL, here only)
            await call.context.abort_with_status(self._unexpected(call, error))

    def _unexpected(self, call: RpcCall, error: Exception) -> grpc.Status:
        outage = _outage(error)
        if outage is not None:
            _log.warning(
                "A call failed because something it needs is unavailable.",
                action="rpc.unavailable",
                method=call.method,
                reason=outage.reason,
                cause=_cut(f"{type(error).__name__}: {error}"),
            )
            return to_grpc_status(outage)
        request_id = current_request_id()
        _log.error(
            "A call failed with an unexpected exception.",
            action="rpc.internal_error",
            method=call.method,
            request_id=request_id,
            exc_info=error,
        )
        return internal_status(request_id)


def to_grpc_status(error: DomainError) -> grpc.Status:
    """Build the status of a domain error: one ErrorInfo, and the details of its class."""
    code = next(STATUS[each] for each in type(error).__mro__ if each in STATUS)
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=ERROR_DOMAIN)
    for key, value in error.metadata.items():
        info.metadata[key] = _cut(value)
        if info.ByteSize() > _MAX_INFO:
            del info.metadata[key]
            break
    return _status(code, error.message, [info, *_details(error)])


def internal_status(request_id: str) -> grpc.Status:
    """Build the answer to a bug: nothing of it but the id under which it was logged."""
    return _status(
        grpc.StatusCode.INTERNAL,
        f"internal error, logged under the id {request_id}",
        [
            error_details_pb2.ErrorInfo(reason="INTERNAL", domain=ERROR_DOMAIN),
            error_details_pb2.RequestInfo(request_id=request_id),
        ],
    )


def current_request_id() -> str:
    """Return the trace id, or a fresh id of that form outside any trace."""
    span = trace.get_current_span().get_span_context()
    return f"{span.trace_id:032x}" if span.is_valid else secrets.token_hex(16)


def _details(error: DomainError) -> list[Message]:
    match error:
        case InvalidArgument():
            return [_bad_request(error)] if error.violations else []
        case FailedPrecondition():
            violation = error_details_pb2.PreconditionFailure.Violation(
                type=error.reason,
                subject=_cut(next(iter(error.metadata.values()), "")),
                description=_cut(error.message),
            )
            return [error_details_pb2.PreconditionFailure(violations=[violation])]
        case ResourceExhausted():
            quota = error_details_pb2.QuotaFailure.Violation(
                subject=error.reason, description=_cut(error.message)
            )
            return [
                error_details_pb2.QuotaFailure(violations=[quota]),
                _retry(error.retry_after),
            ]
        case Unavailable():
            return [_retry(error.retry_after)]
        case _:
            return []


def _bad_request(error: InvalidArgument) -> error_details_pb2.BadRequest:
    request = error_details_pb2.BadRequest()
    for each in error.violations:
        request.field_violations.add(
            field=each.field, description=_cut(each.description), reason=each.reason
        )
        if request.ByteSize() > _MAX_VIOLATIONS:
            del request.field_violations[-1]
            break
    return request


def _retry(seconds: float | None) -> error_details_pb2.RetryInfo:
    delay = Duration()
    delay.FromMilliseconds(round(1000 * (DEFAULT_RETRY if seconds is None else seconds)))
    return error_details_pb2.RetryInfo(retry_delay=delay)


def _status(code: grpc.StatusCode, message: str, details: list[Message]) -> grpc.Status:
    packed = []
    for detail in details:
        packed.append(any_pb2.Any())
        packed[-1].Pack(detail)
    return rpc_status.to_status(
        status_pb2.Status(code=code.value[0], message=_cut(message), details=packed)
    )


def _cut(text: str) -> str:
    """Shorten a text to what fits, at a character."""
    raw = text.encode()
    return text if len(raw) <= _MAX_TEXT else raw[: _MAX_TEXT - 3].decode(errors="ignore") + "…"


def _outage(error: Exception) -> DomainError | None:
    """Recognise what is no bug: the database or another service is away for now, or full."""
    if isinstance(error, grpc.aio.AioRpcError):
        remote = from_rpc_error(error)
        return remote if isinstance(remote, Unavailable | ResourceExhausted) else None
    # An OSError with a file's name is about that file, not about a connection.
    if is_transient(error) and getattr(error, "filename", None) is None:
        return Unavailable("DATABASE_UNAVAILABLE", "the database cannot be reached just now")
    return None
