"""Each state machine is one thing: diagram, transition table, proto enum and CHECK agree."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import cast

import pytest
from google.protobuf.descriptor import EnumDescriptor

from reveille.autopilot.v1 import run_pb2 as autopilot_run_pb2
from reveille.heartbeat.v1 import approval_pb2, issue_pb2, project_pb2, squad_pb2, wakeup_pb2
from reveille.heartbeat.v1 import run_pb2 as heartbeat_run_pb2
from reveille.scheduler.v1 import execution_pb2
from reveille.webhook.v1 import delivery_service_pb2
from reveille_testkit.database import TestDatabase
from reveille_testkit.mermaid import StateDiagram, read_diagrams

PAGE = Path(__file__).resolve().parents[2] / "docs" / "states.md"
SERVICES = ("reveille_scheduler", "reveille_autopilot", "reveille_webhook", "reveille_heartbeat")


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the tellings of one state machine stand."""

    title: str
    package: str
    enum: str
    table: str
    column: str
    proto: EnumDescriptor
    proto_prefix: str

    @property
    def schema(self) -> str:
        return self.package.removeprefix("reveille_")

    @property
    def states(self) -> type[StrEnum]:
        return cast("type[StrEnum]", getattr(self._module(), self.enum))

    @property
    def transitions(self) -> Mapping[StrEnum, frozenset[StrEnum]]:
        table = getattr(self._module(), f"{self.constant}_TRANSITIONS")
        return cast("Mapping[StrEnum, frozenset[StrEnum]]", table)

    @property
    def initial(self) -> frozenset[StrEnum]:
        return cast("frozenset[StrEnum]", getattr(self._module(), f"{self.constant}_INITIAL"))

    @property
    def terminal(self) -> frozenset[StrEnum]:
        return cast("frozenset[StrEnum]", getattr(self._module(), f"{self.constant}_TERMINAL"))

    def diagram(self) -> StateDiagram:
        return read_diagrams(PAGE.read_text(encoding="utf-8"))[self.title]

    @property
    def constant(self) -> str:
        return self.enum.removesuffix("State").removesuffix("Status").upper()

    def _module(self) -> object:
        return importlib.import_module(f"{self.package}.domain.states")


MACHINES = (
    Machine(
        "Execution",
        "reveille_scheduler",
        "ExecutionState",
        "executions",
        "state",
        execution_pb2.ExecutionState.DESCRIPTOR,
        "EXECUTION_STATE_",
    ),
    Machine(
        "Autopilot run",
        "reveille_autopilot",
        "RunState",
        "runs",
        "state",
        autopilot_run_pb2.RunState.DESCRIPTOR,
        "RUN_STATE_",
    ),
    Machine(
        "Delivery",
        "reveille_webhook",
        "DeliveryState",
        "deliveries",
        "state",
        delivery_service_pb2.DeliveryState.DESCRIPTOR,
        "DELIVERY_STATE_",
    ),
    Machine(
        "Wakeup",
        "reveille_heartbeat",
        "WakeupState",
        "wakeup_requests",
        "state",
        wakeup_pb2.WakeupState.DESCRIPTOR,
        "WAKEUP_STATE_",
    ),
    Machine(
        "Agent or squad",
        "reveille_heartbeat",
        "AgentState",
        "squads",
        "state",
        squad_pb2.SquadState.DESCRIPTOR,
        "SQUAD_STATE_",
    ),
    Machine(
        "Heartbeat run",
        "reveille_heartbeat",
        "RunState",
        "runs",
        "state",
        heartbeat_run_pb2.RunState.DESCRIPTOR,
        "RUN_STATE_",
    ),
    Machine(
        "Issue",
        "reveille_heartbeat",
        "IssueState",
        "issues",
        "status",
        issue_pb2.IssueStatus.DESCRIPTOR,
        "ISSUE_STATUS_",
    ),
    Machine(
        "Approval",
        "reveille_heartbeat",
        "ApprovalStatus",
        "approvals",
        "status",
        approval_pb2.ApprovalStatus.DESCRIPTOR,
        "APPROVAL_STATUS_",
    ),
    Machine(
        "Project",
        "reveille_heartbeat",
        "ProjectState",
        "projects",
        "state",
        project_pb2.ProjectState.DESCRIPTOR,
        "PROJECT_STATE_",
    ),
)
each_machine = pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.title)


def test_every_machine_of_the_code_is_drawn_and_no_other() -> None:
    tables = {
        (package, name)
        for package in SERVICES
        for name in vars(importlib.import_module(f"{package}.domain.states"))
        if name.endswith("_TRANSITIONS")
    }

    assert {(machine.package, f"{machine.constant}_TRANSITIONS") for machine in MACHINES} == (
        tables
    )
    assert {machine.title for machine in MACHINES} == set(
        read_diagrams(PAGE.read_text(encoding="utf-8"))
    )


@each_machine
def test_the_diagram_shows_every_transition_of_the_code(machine: Machine) -> None:
    transitions = {
        state.value: frozenset(target.value for target in targets)
        for state, targets in machine.transitions.items()
    }

    assert transitions == machine.diagram().transitions
    assert set(transitions) == {state.value for state in machine.states}


@each_machine
def test_the_diagram_begins_and_ends_where_the_code_does(machine: Machine) -> None:
    diagram = machine.diagram()

    assert {state.value for state in machine.initial} == diagram.initial
    assert {state.value for state in machine.terminal} == diagram.terminal


@each_machine
def test_the_contract_knows_the_same_states(machine: Machine) -> None:
    names = [value.name for value in machine.proto.values if value.number != 0]

    assert all(name.startswith(machine.proto_prefix) for name in names)
    assert {name.removeprefix(machine.proto_prefix).lower() for name in names} == {
        state.value.lower() for state in machine.states
    }


@each_machine
async def test_the_database_accepts_these_states_and_no_other(
    machine: Machine, migrated_database: TestDatabase
) -> None:
    catalogue = await migrated_database.admin()
    checks = [
        row["definition"]
        for row in await catalogue.fetch(
            """
            SELECT pg_get_constraintdef(c.oid) AS definition
            FROM pg_constraint AS c
            JOIN pg_attribute AS a ON a.attrelid = c.conrelid AND c.conkey = ARRAY[a.attnum]
            WHERE c.contype = 'c' AND c.conrelid = to_regclass($1) AND a.attname = $2
            """,
            f"{machine.schema}.{machine.table}",
            machine.column,
        )
    ]

    assert len(checks) == 1
    assert set(re.findall(r"'([^']*)'", checks[0])) == {state.value for state in machine.states}
