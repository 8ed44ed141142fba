"""What callers of each kind may do in a workspace."""

from __future__ import annotations

from uuid import UUID

import pytest

from reveille_runtime.access import Actor, CallerKind, Role, acting_as, current_actor
from reveille_runtime.errors import NotFound, PermissionDenied

HERE = UUID(int=1)
ELSEWHERE = UUID(int=2)


def user(role: Role | None = None, *, operator: bool = False) -> Actor:
    return Actor(
        CallerKind.USER, "u-1", roles={} if role is None else {HERE: role}, operator=operator
    )


@pytest.mark.parametrize(
    ("actor", "role"),
    [
        (user(Role.MEMBER), Role.MEMBER),
        (user(Role.OWNER), Role.OWNER),
        (user(), None),
        (user(operator=True), Role.ADMIN),
        (user(Role.MEMBER, operator=True), Role.ADMIN),
        (user(Role.OWNER, operator=True), Role.OWNER),
        (Actor(CallerKind.SERVICE, "autopilot"), Role.OWNER),
        (Actor(CallerKind.RUN, "r-1", workspace_id=HERE), Role.MEMBER),
        (Actor(CallerKind.RUN, "r-1", workspace_id=ELSEWHERE), None),
        (Actor(CallerKind.RUNTIME, "m-1"), None),
    ],
)
def test_role_in_a_workspace(actor: Actor, role: Role | None) -> None:
    assert actor.role_in(HERE) is role


def test_a_stranger_cannot_tell_a_foreign_workspace_from_an_unknown_one() -> None:
    with pytest.raises(NotFound) as refused:
        user(Role.OWNER).require_member(ELSEWHERE)

    assert refused.value.reason == "NOT_FOUND"


def test_a_member_is_told_which_role_is_missing() -> None:
    user(Role.ADMIN).require_member(HERE, Role.ADMIN)

    with pytest.raises(PermissionDenied) as refused:
        user(Role.MEMBER).require_member(HERE, Role.ADMIN)
    assert refused.value.reason == "ROLE_TOO_WEAK"
    assert refused.value.metadata["required_role"] == "admin"


def test_operators_and_services_pass_where_an_operator_is_needed() -> None:
    user(operator=True).require_operator()
    Actor(CallerKind.SERVICE, "autopilot").require_operator()

    with pytest.raises(PermissionDenied):
        user(Role.OWNER).require_operator()


def test_the_principal_names_kind_and_subject() -> None:
    assert user().principal == "user:u-1"
    assert Actor(CallerKind.SERVICE, "autopilot").user_id is None


def test_there_is_no_caller_outside_a_call() -> None:
    with pytest.raises(LookupError):
        current_actor()

    with acting_as(user()) as actor:
        assert current_actor() is actor
