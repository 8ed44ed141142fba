"""How a command reaches the services: addresses, a token, blocking calls, and their errors.

Addresses come from REVEILLE_*_TARGET, else from the endpoints.json of the data directory. The token
is REVEILLE_TOKEN, else one minted for the user `local` with the operator key of the data directory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from reveille_cli.apis import Api, Service
from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure, Violation
from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.keys import local_operator_token
from reveille_cli.stack.record import read_endpoints
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
from reveille_runtime.rpc_errors import from_rpc_error
from reveille_runtime.tokens import KeyFileError

TOKEN_VARIABLE = "REVEILLE_TOKEN"  # noqa: S105 - the name of a variable
TARGET_VARIABLES: Mapping[Service, str] = {
    Service.SCHEDULER: "REVEILLE_SCHEDULER_TARGET",
    Service.AUTOPILOT: "REVEILLE_AUTOPILOT_TARGET",
    Service.WEBHOOK: "REVEILLE_WEBHOOK_TARGET",
    Service.HEARTBEAT: "REVEILLE_HEARTBEAT_TARGET",
}
TIMEOUT = 30.0
_OPTIONS = (("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", 4 * 1024 * 1024))
_EXIT_CODES: Mapping[type[DomainError], ExitCode] = {
    InvalidArgument: ExitCode.REFUSED,
    OutOfRange: ExitCode.REFUSED,
    NotFound: ExitCode.NOT_FOUND,
    PermissionDenied: ExitCode.NOT_ALLOWED,
    Unauthenticated: ExitCode.NOT_ALLOWED,
    AlreadyExists: ExitCode.CONFLICT,
    FailedPrecondition: ExitCode.CONFLICT,
    Aborted: ExitCode.CONFLICT,
    Unavailable: ExitCode.UNAVAILABLE,
    ResourceExhausted: ExitCode.UNAVAILABLE,
}


def open_channel(target: str) -> grpc.Channel:
    """Open the channel to one address."""
    return grpc.insecure_channel(target, options=_OPTIONS)


class Client:
    """Calls the services of one place; made for one command, closed at its end."""

    def __init__(self, data_dir: Path, environment: Mapping[str, str] | None = None) -> None:
        self.data_dir = DataDir.at(data_dir)
        self._environment = os.environ if environment is None else environment
        self._channels: dict[Service, grpc.Channel] = {}
        self._token = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for channel in self._channels.values():
            channel.close()

    def call(self, api: Api, rpc: str, request: Any, *, timeout: float = TIMEOUT) -> Any:
        """Call an RPC and return its answer."""
        method = self._method(api, rpc)
        try:
            return method(request, timeout=timeout, metadata=self._metadata())
        except grpc.RpcError as error:
            raise self._failure(api.service, error, timeout) from error

    def stream(
        self, api: Api, rpc: str, request: Any, *, timeout: float | None = TIMEOUT
    ) -> Iterator[Any]:
        """Call an RPC that streams, and yield its answers; without a timeout for ever."""
        method = self._method(api, rpc)
        try:
            yield from method(request, timeout=timeout, metadata=self._metadata())
        except grpc.RpcError as error:
            raise self._failure(api.service, error, timeout or 0.0) from error

    def target(self, service: Service) -> str:
        """Find the address of a service."""
        named = self._environment.get(TARGET_VARIABLES[service])
        if named:
            return named
        replicas = read_endpoints(self.data_dir).get(service)
        if not replicas:
            raise Failure(
                "not_running",
                f"no stack runs on {self.data_dir.root}, so there is no {service} to ask",
                ExitCode.UNAVAILABLE,
                hint=f"start one with `reveille up`, or set {TARGET_VARIABLES[service]} and"
                f" {TOKEN_VARIABLE}",
            )
        return str(replicas[0]["grpc"])

    def hooks_url(self, path: str) -> str:
        """Return the address of a hook on this machine's gateway; empty when there is none."""
        replicas = read_endpoints(self.data_dir).get(Service.WEBHOOK) or ({},)
        return f"http://{replicas[0]['http']}{path}" if "http" in replicas[0] else ""

    def _method(self, api: Api, rpc: str) -> Callable[..., Any]:
        if api.service not in self._channels:
            self._channels[api.service] = open_channel(self.target(api.service))
        method: Callable[..., Any] = getattr(api.stub(self._channels[api.service]), rpc)
        return method

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        if not self._token:
            self._token = self._environment.get(TOKEN_VARIABLE) or self._mint()
        return (("authorization", f"Bearer {self._token}"),)

    def _mint(self) -> str:
        try:
            return local_operator_token(self.data_dir.root)
        except KeyFileError as error:
            raise Failure(
                "token_missing",
                f"there is no token: {TOKEN_VARIABLE} is not set, and {error}",
                ExitCode.NOT_ALLOWED,
                hint=f"an operator makes one with `reveille tokens create`; put it in"
                f" {TOKEN_VARIABLE}",
            ) from error

    def _failure(self, service: Service, error: grpc.RpcError, timeout: float) -> Failure:
        domain = from_rpc_error(error)
        # An error of the service itself brings its reason; one of the transport has a code only.
        if domain.reason == grpc.StatusCode.UNAVAILABLE.name:
            # The next call looks anew where the service is, and does not wait for this channel,
            # which tries again ever more seldom.
            self._channels.pop(service).close()
            return Failure(
                "service_unreachable",
                f"{service} does not answer at {self.target(service)}",
                ExitCode.UNAVAILABLE,
                hint="`reveille status` tells whether it runs",
            )
        if domain.reason == grpc.StatusCode.DEADLINE_EXCEEDED.name:
            return Failure(
                "deadline_exceeded",
                f"{service} did not answer within {timeout:g} s",
                ExitCode.UNAVAILABLE,
            )
        return failure_of(domain)


def failure_of(error: DomainError) -> Failure:
    """Turn what a service refused into the failure of a command."""
    exit_code = next(
        (_EXIT_CODES[each] for each in type(error).__mro__ if each in _EXIT_CODES),
        ExitCode.FAILED,
    )
    violations: tuple[Violation, ...] = ()
    message = error.message
    if isinstance(error, InvalidArgument):
        violations = tuple(
            Violation(each.field, _once(each.field, each.description), each.reason.lower())
            for each in error.violations
        )
        if message == "; ".join(f"{each.field}: {each.description}" for each in error.violations):
            message = "; ".join(map(str, violations))
    return Failure(
        error.reason.lower(),
        message,
        exit_code,
        violations=violations,
        metadata=error.metadata,
    )


def _once(field: str, description: str) -> str:
    """Return a description without the field's name before it, which is told anyway."""
    for name in (field, field.rpartition(".")[2]):
        description = description.removeprefix(f"{name}: ")
    return description
