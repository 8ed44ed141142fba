"""Errors from the wire, as another service meant them."""

from __future__ import annotations

import grpc
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2

from reveille_runtime.errors import ResourceExhausted
from reveille_runtime.rpc_errors import from_rpc_error


def test_details_that_cannot_be_read_leave_the_error_and_the_other_details() -> None:
    status = status_pb2.Status()
    status.details.add().Pack(
        error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=10**15))
    )
    status.details.add(type_url="type.googleapis.com/google.rpc.BadRequest", value=b"\xff")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="OVERLOADED"))
    received = from_rpc_error(
        grpc.aio.AioRpcError(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            trailing_metadata=grpc.aio.Metadata(
                ("grpc-status-details-bin", status.SerializeToString())
            ),
        )
    )

    assert isinstance(received, ResourceExhausted)
    assert (received.reason, received.retry_after) == ("OVERLOADED", None)
