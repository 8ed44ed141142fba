"""Our own words are the contract's words."""

from __future__ import annotations

from reveille.autopilot.v1 import (
    autopilot_pb2,
    rule_version_pb2,
    run_pb2,
    workspace_service_pb2,
)
from reveille.common.v1 import access_pb2, reason_pb2
from reveille.heartbeat.v1 import wakeup_pb2
from reveille_autopilot.domain.outcomes import WakeState
from reveille_autopilot.domain.states import (
    AttributionSource,
    AutopilotStatus,
    Change,
    ExecutionMode,
    MemberRole,
    OverlapPolicy,
    QuotaAction,
    QuotaPeriod,
    Reason,
    RunSource,
    TriggerKind,
)


def names(descriptor: object, prefix: str) -> set[str]:
    values = getattr(descriptor, "values_by_name")  # noqa: B009 - untyped by the library
    return {name.removeprefix(prefix) for name in values} - {"UNSPECIFIED"}


def test_every_reason_is_one_of_the_contract() -> None:
    known = names(reason_pb2.Reason.DESCRIPTOR, "REASON_")
    assert {reason.value.upper() for reason in Reason} <= known


def test_every_enum_has_the_contracts_values() -> None:
    pairs = [
        (RunSource, run_pb2.RunSource.DESCRIPTOR, "RUN_SOURCE_"),
        (AttributionSource, run_pb2.AttributionSource.DESCRIPTOR, "ATTRIBUTION_SOURCE_"),
        (ExecutionMode, autopilot_pb2.ExecutionMode.DESCRIPTOR, "EXECUTION_MODE_"),
        (AutopilotStatus, autopilot_pb2.AutopilotStatus.DESCRIPTOR, "AUTOPILOT_STATUS_"),
        (OverlapPolicy, autopilot_pb2.OverlapPolicy.DESCRIPTOR, "OVERLAP_POLICY_"),
        (TriggerKind, autopilot_pb2.TriggerKind.DESCRIPTOR, "TRIGGER_KIND_"),
        (Change, rule_version_pb2.RuleChange.DESCRIPTOR, "RULE_CHANGE_"),
        (QuotaAction, workspace_service_pb2.QuotaAction.DESCRIPTOR, "QUOTA_ACTION_"),
        (QuotaPeriod, workspace_service_pb2.QuotaPeriod.DESCRIPTOR, "QUOTA_PERIOD_"),
        (MemberRole, access_pb2.Role.DESCRIPTOR, "ROLE_"),
        (WakeState, wakeup_pb2.WakeupState.DESCRIPTOR, "WAKEUP_STATE_"),
    ]
    for ours, descriptor, prefix in pairs:
        assert {member.value.upper() for member in ours} == names(descriptor, prefix), ours
