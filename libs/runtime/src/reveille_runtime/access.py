"""The caller of an RPC: kinds, workspace roles, and the checks a use case asks of it.

The access interceptor decides whether a *kind* of caller may use a method and puts the `Actor`
here. Whether that caller may touch a certain workspace is asked by the use case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never
from uuid import UUID

from reveille_runtime.errors import NotFound, PermissionDenied


class CallerKind(StrEnum):
    """What a token stands for."""

    SERVICE = "service"
    USER = "user"
    RUN = "run"
    RUNTIME = "runtime"


class Role(StrEnum):
    """A user's role in one workspace."""

    MEMBER = "member"
    ADMIN = "admin"
    OWNER = "owner"

    def covers(self, minimum: Role) -> bool:
        """Tell whether this role is at least `minimum`."""
        return _RANK[self] >= _RANK[minimum]


_RANK: Mapping[Role, int] = {Role.MEMBER: 1, Role.ADMIN: 2, Role.OWNER: 3}


@dataclass(frozen=True, slots=True)
class Actor:
    """Whoever made the call, as its verified token says."""

    kind: CallerKind
    subject: str
    issuer: str = ""
    roles: Mapping[UUID, Role] = field(default_factory=dict)
    operator: bool = False
    workspace_id: UUID | None = None
    run_id: UUID | None = None

    @property
    def principal(self) -> str:
        """The caller in one string, as request ids and occurrence keys are scoped by it."""
        return f"{self.kind.value}:{self.subject}"

    @property
    def user_id(self) -> str | None:
        """The user's id, or None for every other kind of caller."""
        return self.subject if self.kind is CallerKind.USER else None

    def role_in(self, workspace_id: UUID) -> Role | None:
        """Return the role this caller acts with in a workspace, None for a stranger."""
        match self.kind:
            case CallerKind.SERVICE:
                return Role.OWNER
            case CallerKind.USER:
                role = self.roles.get(workspace_id)
                if self.operator and (role is None or not role.covers(Role.ADMIN)):
                    return Role.ADMIN
                return role
            case CallerKind.RUN | CallerKind.RUNTIME:
                return Role.MEMBER if self.workspace_id == workspace_id else None
            case _:
                assert_never(self.kind)

    def require_member(self, workspace_id: UUID, minimum: Role = Role.MEMBER) -> None:
        """Refuse a caller without at least `minimum` in the workspace.

        A stranger gets the same answer as for a workspace that does not exist.
        """
        role = self.role_in(workspace_id)
        if role is None:
            raise NotFound(
                "NOT_FOUND",
                f"workspace {workspace_id} does not exist, or is not yours",
                {"workspace_id": str(workspace_id)},
            )
        if not role.covers(minimum):
            raise PermissionDenied(
                "ROLE_TOO_WEAK",
                f"this needs the role {minimum.value} in the workspace; yours is {role.value}",
                {
                    "workspace_id": str(workspace_id),
                    "required_role": minimum.value,
                    "role": role.value,
                },
            )

    def require_operator(self) -> None:
        """Refuse everyone but services and operators."""
        if self.kind is CallerKind.SERVICE or self.operator:
            return
        raise PermissionDenied(
            "OPERATOR_REQUIRED",
            "this needs an operator's token (reveille tokens create --operator)",
        )


_ACTOR: ContextVar[Actor | None] = ContextVar("reveille_actor", default=None)


def current_actor() -> Actor:
    """Return the caller of the RPC being handled."""
    actor = _ACTOR.get()
    if actor is None:
        raise LookupError("no caller here: this code runs outside an authenticated RPC")
    return actor


def set_actor(actor: Actor) -> None:
    """Name the caller for the rest of the current task (one RPC is one task)."""
    _ACTOR.set(actor)


@contextmanager
def acting_as(actor: Actor) -> Iterator[Actor]:
    """Name the caller for a block: for loops that act by themselves, and for tests."""
    token = _ACTOR.set(actor)
    try:
        yield actor
    finally:
        _ACTOR.reset(token)
