"""Who may call: credentials of incoming calls, the methods' declarations, our own credentials."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import assert_never

from google.protobuf import descriptor_pool

from reveille.common.v1 import access_pb2
from reveille_runtime.access import Actor, CallerKind, set_actor
from reveille_runtime.errors import PermissionDenied, Unauthenticated
from reveille_runtime.interceptors.chain import Done, OutgoingCall, RpcCall
from reveille_runtime.tokens import TokenVerifier

AUTHORIZATION = "authorization"
_SCHEME = "bearer "


class UndeclaredMethodsError(Exception):
    """A service offers methods that do not say who may call them."""

    def __init__(self, methods: Iterable[str]) -> None:
        self.methods = tuple(sorted(methods))
        super().__init__(
            "these methods lack the option (reveille.common.v1.access): " + ", ".join(self.methods)
        )


class AccessTable:
    """The access option of every method served, read from the protos' own descriptors."""

    def __init__(self) -> None:
        self._declared: dict[str, access_pb2.Access] = {}

    def add(self, service: str) -> None:
        """Read a service's declarations; refuse a service that has a method without one."""
        pool = descriptor_pool.Default()
        undeclared = []
        for method in pool.FindServiceByName(service).methods:
            name = f"{service}/{method.name}"
            options = method.GetOptions()
            if options.HasExtension(access_pb2.access):
                self._declared[name] = options.Extensions[access_pb2.access]
            else:
                undeclared.append(name)
        if undeclared:
            raise UndeclaredMethodsError(undeclared)

    def allows(self, method: str, actor: Actor) -> bool:
        """Tell whether this kind of caller may use the method at all."""
        access = self._declared.get(method)
        if access is None:
            return False
        match actor.kind:
            case CallerKind.SERVICE:
                return "*" in access.services or actor.subject in access.services
            case CallerKind.USER:
                return access.user != access_pb2.ROLE_UNSPECIFIED or (
                    access.operator and actor.operator
                )
            case CallerKind.RUN:
                return access.run
            case CallerKind.RUNTIME:
                return access.runtime
            case _:
                assert_never(actor.kind)


class ServerAccess:
    """Verifies the token, asks the table, and names the caller for the rest of the call."""

    def __init__(self, table: AccessTable, verifier: TokenVerifier) -> None:
        self._table = table
        self._verifier = verifier

    @asynccontextmanager
    async def around(self, call: RpcCall) -> AsyncIterator[None]:
        """Let the call in, or refuse it."""
        actor = self._verifier.verify(_token(call.metadata.get(AUTHORIZATION, "")))
        if not self._table.allows(call.method, actor):
            raise PermissionDenied(
                "CALLER_NOT_ALLOWED",
                f"{actor.kind.value} {actor.subject} may not call {call.method}",
                {"method": call.method, "caller_kind": actor.kind.value},
            )
        set_actor(actor)
        yield


class ClientCredentials:
    """Sends a token with every call that does not bring its own."""

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    def opening(self, call: OutgoingCall) -> tuple[OutgoingCall, Done | None]:
        """Add the authorization header."""
        if any(key == AUTHORIZATION for key, _ in call.metadata):
            return call, None
        header = (AUTHORIZATION, f"Bearer {self._token()}")
        return replace(call, metadata=(*call.metadata, header)), None


def _token(header: str) -> str:
    if not header:
        raise Unauthenticated("TOKEN_MISSING", "the call carries no bearer token")
    if header[: len(_SCHEME)].lower() != _SCHEME:
        raise Unauthenticated("TOKEN_INVALID", "the authorization header is not a bearer token")
    return header[len(_SCHEME) :].strip()
