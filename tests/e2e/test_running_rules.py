"""Rules and those who work for them: squads, runtimes and issues that go, over real services."""

from __future__ import annotations

from reveille.autopilot.v1 import autopilot_pb2, run_pb2
from reveille.autopilot.v1 import autopilot_service_pb2 as autopilot
from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import agent_pb2, issue_pb2, runtime_pb2, squad_pb2
from reveille_testkit.waiting import eventually

from .harness import CREATE_ISSUE, RUN_ONLY, World


async def rule(world: World, autopilot_id: str) -> autopilot_pb2.Autopilot:
    answer = await world.client.autopilots.GetAutopilot(
        autopilot.GetAutopilotRequest(autopilot_id=autopilot_id)
    )
    found: autopilot_pb2.Autopilot = answer.autopilot
    return found


async def test_a_deleted_runtime_and_an_archived_squad_change_the_rules_that_rest_on_them(
    world: World,
) -> None:
    workspace_id = await world.create_workspace()
    leader, _ = await world.create_marking_agent(workspace_id)
    bound, _ = await world.create_marking_agent(workspace_id)
    agents = world.client.agents
    runtime = await agents.RegisterRuntime(
        runtime_pb2.RegisterRuntimeRequest(workspace_id=workspace_id, name="elsewhere")
    )
    edit = agent_pb2.UpdateAgentRequest(
        agent=agent_pb2.Agent(agent_id=bound, runtime_id=runtime.runtime.runtime_id)
    )
    edit.update_mask.paths.append("runtime_id")
    await agents.UpdateAgent(edit)
    squad = (
        await agents.CreateSquad(
            squad_pb2.CreateSquadRequest(
                workspace_id=workspace_id, name="night shift", leader_agent_id=leader
            )
        )
    ).squad
    by_agent = await world.create_autopilot(workspace_id, bound, RUN_ONLY)
    made = await world.client.autopilots.CreateAutopilot(
        autopilot.CreateAutopilotRequest(
            workspace_id=workspace_id,
            title="For a squad",
            prompt="Look.",
            squad_id=squad.squad_id,
            execution_mode=CREATE_ISSUE,
        )
    )
    by_squad = made.autopilot.autopilot_id
    run = await world.run_now(by_squad)
    assert (run.squad_id, run.agent_id) == (squad.squad_id, leader)
    issue = await world.client.issues.GetIssue(issue_pb2.GetIssueRequest(issue_id=run.issue_id))
    assert issue.issue.assignee_agent_id == leader
    # An issue that is deleted fails the run that made it.
    await world.client.issues.DeleteIssue(issue_pb2.DeleteIssueRequest(issue_id=run.issue_id))
    assert (await world.outcome(run.run_id)).state == run_pb2.RUN_STATE_FAILED

    await agents.DeleteRuntime(
        runtime_pb2.DeleteRuntimeRequest(runtime_id=runtime.runtime.runtime_id)
    )
    paused = await eventually(
        lambda: rule(world, by_agent),
        "it is paused",
        until=lambda found: found.status == autopilot_pb2.AUTOPILOT_STATUS_PAUSED,
    )
    assert paused.pause_reason == reason_pb2.REASON_AGENT_RUNTIME_REQUIRED
    await agents.ArchiveSquad(squad_pb2.ArchiveSquadRequest(squad_id=squad.squad_id))
    handed = await eventually(
        lambda: rule(world, by_squad),
        "the leader works for it",
        until=lambda found: found.agent_id == leader,
    )
    assert (handed.squad_id, handed.status) == ("", autopilot_pb2.AUTOPILOT_STATUS_ACTIVE)
