"""Plays the main job: a request from GitHub, a rule run by hand, a minute that strikes."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

from reveille.autopilot.v1 import autopilot_service_pb2 as autopilot
from reveille.autopilot.v1 import run_pb2 as autopilot_run
from reveille.heartbeat.v1 import issue_pb2, run_pb2
from reveille.scheduler.v1 import execution_pb2, scheduler_service_pb2
from reveille.webhook.v1 import delivery_service_pb2 as webhook
from reveille_cli.apis import AGENT_RUNS, AUTOPILOTS, DELIVERIES, ISSUES, SCHEDULER
from reveille_cli.connection import Client
from reveille_cli.demo import github
from reveille_cli.demo.progress import Progress
from reveille_cli.demo.stage import Examples, Stage
from reveille_cli.demo.story import Posts, RunStory, Story
from reveille_cli.demo.traced import is_whole
from reveille_cli.findings import explain
from reveille_cli.nouns.runs import ENDED
from reveille_cli.spans import Trace, read_trace

_OUTCOME_WITHIN = 45.0
# A minute that has just begun may be too late for a trigger that is a moment old.
_FIRE_WITHIN = 90.0
_SPANS_WITHIN = 10.0
_LOG_LIMIT = 65_536


class Play:
    """One performance on a stage."""

    def __init__(
        self,
        client: Client,
        stage: Stage,
        examples: Examples,
        progress: Progress,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._stage = stage
        self._examples = examples
        self._progress = progress
        self._now = now

    def perform(self) -> Story:
        """Do everything and read what came of it."""
        posts = self._post()
        hooked = self._run_of(posts.first.text("run_id"))
        self._progress.step("running a rule by hand")
        manual = self._run_by_hand()
        scheduled = self._await_schedule()
        deliveries = self._deliveries()
        return Story(
            stage=self._stage,
            posts=posts,
            delivery=deliveries.get(posts.request.delivery),
            rejected=next(
                (
                    each
                    for each in deliveries.values()
                    if each.state == webhook.DELIVERY_STATE_REJECTED
                ),
                None,
            ),
            runs_of_hook=len(self._runs_of(self._stage.webhook.trigger_id)),
            webhook=None if hooked is None else self._story(hooked),
            manual=self._story(manual),
            execution=None if scheduled is None else self._execution(scheduled),
            schedule=None if scheduled is None else self._story(scheduled),
            why=explain(self._client, posts.first.text("run_id") or self._stage.webhook.trigger_id),
        )

    def _post(self) -> Posts:
        stage, request = self._stage, github.issues_opened(self._examples.issue, self._stage.secret)
        self._progress.step("posting a new issue as GitHub does, again, and with a bad signature")
        return Posts(
            request=request,
            first=github.post(stage.hook_url, request),
            again=github.post(stage.hook_url, request),
            forged=github.post(stage.hook_url, github.forged(request)),
        )

    def _run_of(self, run_id: str) -> autopilot_run.AutopilotRun | None:
        return self._outcome(run_id, "the agent to answer") if run_id else None

    def _run_by_hand(self) -> autopilot_run.AutopilotRun:
        answer: autopilot.RunAutopilotResponse = self._client.call(
            AUTOPILOTS,
            "RunAutopilot",
            autopilot.RunAutopilotRequest(
                autopilot_id=self._stage.by_hand.autopilot_id,
                payload=json.dumps({"note": "The keeper was here."}).encode(),
            ),
        )
        return self._outcome(answer.run.run_id, "the note to be taken")

    def _await_schedule(self) -> autopilot_run.AutopilotRun | None:
        """Wait for the minute to strike, then for the run that it makes."""
        trigger = self._stage.schedule
        fires = trigger.schedule.next_fire_time.ToDatetime(UTC)

        def first() -> autopilot_run.AutopilotRun | None:
            runs = self._runs_of(trigger.trigger_id)
            return runs[-1] if runs else None

        def text() -> str:
            left = (fires - self._now()).total_seconds()
            when = f"in {left:.0f} s" if left > 0 else "now"
            return f"waiting for the cron trigger: it fires at {fires:%H:%M:%S} UTC, {when}"

        seen = self._progress.wait(first, text, timeout=_FIRE_WITHIN)
        return None if seen is None else self._outcome(seen.run_id, "the scheduled run to end")

    def _outcome(self, run_id: str, what: str) -> autopilot_run.AutopilotRun:
        """Wait for a run's outcome; one that has none in time is told as it stands."""
        request = autopilot.GetRunRequest(run_id=run_id)

        def get() -> autopilot_run.AutopilotRun:
            answer: autopilot.GetRunResponse = self._client.call(AUTOPILOTS, "GetRun", request)
            return answer.run

        def ended() -> autopilot_run.AutopilotRun | None:
            run = get()
            return run if run.state in ENDED else None

        run = self._progress.wait(ended, lambda: f"waiting for {what}", timeout=_OUTCOME_WITHIN)
        return run or get()

    def _story(self, run: autopilot_run.AutopilotRun) -> RunStory:
        attempts = self._attempts(run)
        return RunStory(
            run=run,
            attempts=attempts,
            output=self._output(attempts[0].run_id) if attempts else "",
            issue=self._issue(run.issue_id) if run.issue_id else None,
            trace=self._trace(run.trace_id),
        )

    def _trace(self, trace_id: str) -> Trace | None:
        """Read a trace once its last spans are written, or what there is of it by then."""
        folder = self._client.data_dir.otlp

        def whole() -> Trace | None:
            found = read_trace(folder, trace_id)
            return found if is_whole(found) else None

        waiting = "waiting for the last spans to be written"
        found = self._progress.wait(whole, lambda: waiting, timeout=_SPANS_WITHIN)
        return found or read_trace(folder, trace_id)

    def _runs_of(self, trigger_id: str) -> list[autopilot_run.AutopilotRun]:
        """List what a trigger has made, newest first."""
        answer: autopilot.ListRunsResponse = self._client.call(
            AUTOPILOTS,
            "ListRuns",
            autopilot.ListRunsRequest(workspace_id=self._stage.workspace_id, trigger_id=trigger_id),
        )
        return list(answer.runs)

    def _attempts(self, run: autopilot_run.AutopilotRun) -> list[run_pb2.HeartbeatRun]:
        """List the attempts behind a run, by its wakeup or its issue, with their results."""
        answer: run_pb2.ListRunsResponse = self._client.call(
            AGENT_RUNS,
            "ListRuns",
            run_pb2.ListRunsRequest(
                workspace_id=run.workspace_id, agent_id=run.agent_id, wakeup_id=run.wakeup_id
            ),
        )
        mine = [
            each.run_id for each in answer.runs if run.wakeup_id or each.issue_id == run.issue_id
        ]
        return [self._attempt(run_id) for run_id in mine]

    def _attempt(self, run_id: str) -> run_pb2.HeartbeatRun:
        answer: run_pb2.GetRunResponse = self._client.call(
            AGENT_RUNS, "GetRun", run_pb2.GetRunRequest(run_id=run_id)
        )
        return answer.run

    def _output(self, run_id: str) -> str:
        """Read what the agent wrote, its errors last."""
        chunks = []
        for stream in (run_pb2.LOG_STREAM_STDOUT, run_pb2.LOG_STREAM_STDERR):
            request = run_pb2.ReadRunLogRequest(run_id=run_id, stream=stream, limit=_LOG_LIMIT)
            answer: run_pb2.ReadRunLogResponse = self._client.call(
                AGENT_RUNS, "ReadRunLog", request
            )
            chunks.append(answer.chunk)
        return b"".join(chunks).decode(errors="replace")

    def _issue(self, issue_id: str) -> issue_pb2.Issue:
        answer: issue_pb2.GetIssueResponse = self._client.call(
            ISSUES, "GetIssue", issue_pb2.GetIssueRequest(issue_id=issue_id)
        )
        return answer.issue

    def _deliveries(self) -> dict[str, webhook.Delivery]:
        """List what came in at the hook, by the sender's ids; a rejected one need have none."""
        answer: webhook.ListDeliveriesResponse = self._client.call(
            DELIVERIES,
            "ListDeliveries",
            webhook.ListDeliveriesRequest(
                workspace_id=self._stage.workspace_id,
                endpoint_id=self._stage.webhook.trigger_id,
            ),
        )
        return {each.dedupe_id or each.delivery_id: each for each in answer.deliveries}

    def _execution(self, run: autopilot_run.AutopilotRun) -> execution_pb2.Execution | None:
        answer: scheduler_service_pb2.ListExecutionsResponse = self._client.call(
            SCHEDULER,
            "ListExecutions",
            scheduler_service_pb2.ListExecutionsRequest(scope_id=run.trigger_id),
        )
        same = (each for each in answer.executions if each.plan_time == run.planned_time)
        return next(same, None)
