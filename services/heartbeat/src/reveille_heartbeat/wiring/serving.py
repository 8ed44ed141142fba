"""The RPCs of the heartbeat service, each with what it is made of."""

from __future__ import annotations

from reveille.events.v1.event_service_pb2_grpc import add_EventServiceServicer_to_server
from reveille.explain.v1.explain_service_pb2_grpc import add_ExplainServiceServicer_to_server
from reveille.heartbeat.v1.agent_pb2_grpc import add_AgentServiceServicer_to_server
from reveille.heartbeat.v1.issue_pb2_grpc import add_IssueServiceServicer_to_server
from reveille.heartbeat.v1.run_pb2_grpc import add_RunServiceServicer_to_server
from reveille.heartbeat.v1.wakeup_pb2_grpc import add_WakeupServiceServicer_to_server
from reveille.heartbeat.v1.workspace_replica_service_pb2_grpc import (
    add_WorkspaceReplicaServiceServicer_to_server,
)
from reveille_heartbeat.config import Settings
from reveille_heartbeat.domain.limits import RunLimits
from reveille_heartbeat.rpc.agents import AgentServicer
from reveille_heartbeat.rpc.issues import IssueServicer
from reveille_heartbeat.rpc.runs import RunServicer
from reveille_heartbeat.rpc.wakeups import WakeupServicer
from reveille_heartbeat.rpc.workspaces import WorkspaceReplicaServicer
from reveille_heartbeat.usecases import channels
from reveille_heartbeat.usecases.agents.check_invocable import CheckInvocable
from reveille_heartbeat.usecases.agents.create_agent import CreateAgent
from reveille_heartbeat.usecases.agents.move_agent import MoveAgent
from reveille_heartbeat.usecases.agents.put_workspace import PutWorkspace
from reveille_heartbeat.usecases.agents.runtimes import Runtimes
from reveille_heartbeat.usecases.agents.squads import Squads
from reveille_heartbeat.usecases.agents.update_agent import UpdateAgent
from reveille_heartbeat.usecases.issues.add_comment import AddComment
from reveille_heartbeat.usecases.issues.approvals import Approvals
from reveille_heartbeat.usecases.issues.checkout_issue import CheckoutIssue
from reveille_heartbeat.usecases.issues.create_issue import CreateIssue
from reveille_heartbeat.usecases.issues.delete_issue import DeleteIssue
from reveille_heartbeat.usecases.issues.hold_trees import HoldTrees
from reveille_heartbeat.usecases.issues.projects import Projects
from reveille_heartbeat.usecases.issues.reading_issues import IssueReader
from reveille_heartbeat.usecases.issues.relate_issues import RelateIssues
from reveille_heartbeat.usecases.issues.update_issue import UpdateIssue
from reveille_heartbeat.usecases.reading import Reader
from reveille_heartbeat.usecases.runs.cancel_run import CancelRun
from reveille_heartbeat.usecases.runs.promote_retries import RetryTurn
from reveille_heartbeat.usecases.runs.retry_run import RetryRun
from reveille_heartbeat.usecases.runs.run_news import ReadNews
from reveille_heartbeat.usecases.runs.watch_run import WatchRuns
from reveille_heartbeat.usecases.wakeups.cancel_wakeup import CancelWakeup
from reveille_heartbeat.usecases.wakeups.cancel_wakeups import CancelWakeups
from reveille_heartbeat.usecases.wakeups.enqueue_wakeups import EnqueueWakeups
from reveille_heartbeat.usecases.why.explain import Explain
from reveille_heartbeat.usecases.why.explaining import Setting
from reveille_heartbeat.wiring.basics import Basics
from reveille_runtime.app import App
from reveille_runtime.explain import ExplainServicer
from reveille_runtime.feed.servicer import EventServicer
from reveille_runtime.hints import HintBus
from reveille_runtime.ids import new_id
from reveille_runtime.lifecycle import Loop

# Seconds between looks at runs that are followed, when no hint comes.
_WATCH_INTERVAL = 0.5


def serve(app: App[Settings], basics: Basics, bus: HintBus) -> None:
    """Register the RPCs."""
    database, notifier, spans = basics.database, basics.notifier, basics.spans
    reader = Reader(database)
    making = (database, basics.telemetry, notifier, basics.enqueuing)
    server = app.server
    server.add(
        add_AgentServiceServicer_to_server,
        AgentServicer(
            CreateAgent(database, basics.presence, new_id),
            UpdateAgent(database, basics.registry.check, basics.presence, new_id),
            MoveAgent(database, notifier, spans),
            CheckInvocable(database),
            basics.registry.check,
            reader,
            Squads(database, notifier),
            Runtimes(database, notifier),
        ),
    )
    server.add(
        add_IssueServiceServicer_to_server,
        issue_servicer(basics),
    )
    server.add(
        add_WakeupServiceServicer_to_server,
        WakeupServicer(
            EnqueueWakeups(*making),
            CancelWakeups(database, notifier, spans, basics.promotion, basics.consequences),
            CancelWakeup(database, notifier, spans, basics.promotion),
            reader,
        ),
    )
    watch = WatchRuns(
        ReadNews(database, basics.log_store),
        bus.event(channels.FEED, channels.OUTPUT),
        server.draining,
    )
    app.works(Loop("run.watch", watch.step, _WATCH_INTERVAL, watch))
    server.add(
        add_RunServiceServicer_to_server,
        RunServicer(
            reader,
            basics.run_log,
            watch,
            CancelRun(database, notifier, spans, basics.promotion),
            RetryRun(database, notifier, RetryTurn(basics.promotion), basics.enqueuing),
        ),
    )
    server.add(
        add_WorkspaceReplicaServiceServicer_to_server,
        WorkspaceReplicaServicer(PutWorkspace(database, basics.presence, new_id)),
    )
    server.add(
        add_EventServiceServicer_to_server,
        EventServicer(database, lambda: bus.event(channels.FEED), server.draining),
    )
    settings = basics.settings
    limits = RunLimits(settings.workspace_run_limit or None, settings.global_run_limit or None)
    explain = Explain(database, Setting(settings.scheduling_suppressed, limits))
    server.add(add_ExplainServiceServicer_to_server, ExplainServicer(explain))


def issue_servicer(basics: Basics) -> IssueServicer:
    """Make what serves issues."""
    database, notifier, spans = basics.database, basics.notifier, basics.spans
    consequences = basics.consequences
    changing = (database, notifier, spans, consequences)
    return IssueServicer(
        CreateIssue(database, basics.telemetry, notifier, basics.enqueuing),
        UpdateIssue(*changing),
        DeleteIssue(*changing),
        CheckoutIssue(*changing),
        AddComment(database, notifier, consequences, new_id),
        Approvals(database, notifier, consequences, new_id),
        RelateIssues(database, notifier, consequences),
        HoldTrees(*changing),
        Projects(database),
        IssueReader(database),
    )
