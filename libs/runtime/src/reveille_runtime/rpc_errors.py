"""Errors from the wire: what another service answered, as the domain error it raised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from reveille_runtime.errors import (
    Aborted,
    AlreadyExists,
    DomainError,
    FailedPrecondition,
    FieldViolation,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from reveille_runtime.sqlstate import is_transient

STATUS_DETAILS = "grpc-status-details-bin"

_SIMPLE: Mapping[grpc.StatusCode, type[DomainError]] = {
    grpc.StatusCode.OUT_OF_RANGE: OutOfRange,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.ABORTED: Aborted,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
}
_RETRYABLE: Mapping[grpc.StatusCode, type[Unavailable | ResourceExhausted]] = {
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    # The peer may have done the work or not: just like a lost connection.
    grpc.StatusCode.DEADLINE_EXCEEDED: Unavailable,
    grpc.StatusCode.CANCELLED: Unavailable,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
}


def from_rpc_error(error: grpc.RpcError) -> DomainError:
    """Rebuild the domain error; plain `DomainError` for a fault of the other side."""
    code = error.code()
    found = _read_details(error)
    message = error.details() or code.name
    reason = found.reason or code.name
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return InvalidArgument(
            found.violations, reason=reason, message=message, metadata=found.metadata
        )
    if code in _RETRYABLE:
        return _RETRYABLE[code](reason, message, found.metadata, retry_after=found.retry_after)
    return _SIMPLE.get(code, DomainError)(reason, message, found.metadata)


def is_passing(error: BaseException) -> bool:
    """The same may succeed later: whoever is needed for it is away, or full."""
    if isinstance(error, grpc.RpcError):
        error = from_rpc_error(error)
    return isinstance(error, Unavailable | ResourceExhausted) or is_transient(error)


@contextmanager
def as_domain_errors() -> Iterator[None]:
    """Raise domain errors for the RPC errors of a block."""
    try:
        yield
    except grpc.RpcError as error:
        raise from_rpc_error(error) from error


@dataclass(slots=True)
class _Details:
    reason: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    violations: list[FieldViolation] = field(default_factory=list)
    retry_after: float | None = None


def _read_details(error: grpc.RpcError) -> _Details:
    found = _Details()
    trailers: Any = error.trailing_metadata() or ()
    raw = next((value for key, value in trailers if key == STATUS_DETAILS), None)
    if not isinstance(raw, bytes):
        return found
    try:
        status = status_pb2.Status.FromString(raw)
    except DecodeError:
        return found
    for detail in status.details:
        try:
            _read_detail(detail, found)
        except (DecodeError, ValueError, OverflowError):
            # The error itself arrived: rubbish that came along with it must not replace it.
            continue
    return found


def _read_detail(detail: any_pb2.Any, found: _Details) -> None:
    info = error_details_pb2.ErrorInfo()
    request = error_details_pb2.BadRequest()
    retry = error_details_pb2.RetryInfo()
    if detail.Unpack(info):
        found.reason = info.reason
        found.metadata = dict(info.metadata)
    elif detail.Unpack(request):
        found.violations = [
            FieldViolation(each.field, each.description, each.reason)
            for each in request.field_violations
        ]
    elif detail.Unpack(retry):
        found.retry_after = retry.retry_delay.ToTimedelta().total_seconds()
