"""Every attribute, span, metric and action name that telemetry uses, in one place.

OpenTelemetry's own package keeps the names that are not stable yet in a private module that
changes, so those we use are written out here. Our own attributes start with `reveille.`.
"""

from __future__ import annotations

from typing import Final

# Remote procedure calls.
RPC_SYSTEM: Final = "rpc.system.name"
RPC_SYSTEM_GRPC: Final = "grpc"
RPC_METHOD: Final = "rpc.method"
RPC_STATUS_CODE: Final = "rpc.status_code"
RPC_SERVER_DURATION: Final = "rpc.server.call.duration"
RPC_CLIENT_DURATION: Final = "rpc.client.call.duration"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
ERROR_TYPE: Final = "error.type"

# The database.
DB_SYSTEM: Final = "db.system.name"
DB_SYSTEM_POSTGRESQL: Final = "postgresql"
DB_NAMESPACE: Final = "db.namespace"
DB_QUERY_SUMMARY: Final = "db.query.summary"
DB_QUERY_TEXT: Final = "db.query.text"
DB_STATUS_CODE: Final = "db.response.status_code"
DB_TABLE: Final = "db.collection.name"
DB_BATCH_SIZE: Final = "db.operation.batch.size"
DB_DURATION: Final = "db.client.operation.duration"
DB_WAIT_TIME: Final = "db.client.connection.wait_time"

# Our queues, which are tables.
MESSAGING_SYSTEM: Final = "messaging.system"
MESSAGING_SYSTEM_PG: Final = "reveille_pg"
MESSAGING_DESTINATION: Final = "messaging.destination.name"
MESSAGING_MESSAGE_ID: Final = "messaging.message.id"
MESSAGING_OPERATION: Final = "messaging.operation.type"
MESSAGING_BATCH_COUNT: Final = "messaging.batch.message_count"

# HTTP.
HTTP_METHOD: Final = "http.request.method"
HTTP_ROUTE: Final = "http.route"
HTTP_STATUS_CODE: Final = "http.response.status_code"
HTTP_BODY_SIZE: Final = "http.request.body.size"
HTTP_SERVER_DURATION: Final = "http.server.request.duration"
URL_SCHEME: Final = "url.scheme"

# Agents.
GEN_AI_OPERATION: Final = "gen_ai.operation.name"
GEN_AI_OPERATION_INVOKE: Final = "invoke_agent"
GEN_AI_PROVIDER: Final = "gen_ai.provider.name"
GEN_AI_AGENT_ID: Final = "gen_ai.agent.id"
GEN_AI_AGENT_NAME: Final = "gen_ai.agent.name"
GEN_AI_CONVERSATION_ID: Final = "gen_ai.conversation.id"
GEN_AI_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
GEN_AI_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"

# Our own.
WORKSPACE_ID: Final = "reveille.workspace.id"
AUTOPILOT_ID: Final = "reveille.autopilot.id"
TRIGGER_ID: Final = "reveille.trigger.id"
TRIGGER_SOURCE: Final = "reveille.trigger.source"
RUN_ID: Final = "reveille.run.id"
RUN_OUTCOME: Final = "reveille.run.outcome"
RUN_REASON: Final = "reveille.run.reason"
RUN_RETRY_REASON: Final = "reveille.run.retry_reason"
AGENT_RUN_ID: Final = "reveille.agent_run.id"
AGENT_RUN_ATTEMPT: Final = "reveille.agent_run.attempt"
WAKEUP_ID: Final = "reveille.wakeup.id"
ISSUE_ID: Final = "reveille.issue.id"
DELIVERY_ID: Final = "reveille.delivery.id"
DELIVERY_OUTCOME: Final = "reveille.delivery.outcome"
OCCURRENCE_KEY: Final = "reveille.occurrence.key"
JOB_NAME: Final = "reveille.job.name"
PLAN_TIME: Final = "reveille.plan.time"
EXECUTION_ID: Final = "reveille.execution.id"
LINK_KIND: Final = "reveille.link.kind"

METRIC_LATENESS: Final = "reveille.scheduler.lateness"
METRIC_EXECUTIONS: Final = "reveille.scheduler.executions"
METRIC_OLDEST_AGE: Final = "reveille.queue.oldest_age"
METRIC_QUOTA_OVER: Final = "reveille.autopilot.quota.over"
METRIC_DEAD_ROWS: Final = "reveille.db.dead_rows"
METRIC_QUEUE_DEPTH: Final = "reveille.queue.depth"
METRIC_RUN_DURATION: Final = "reveille.run.duration"
METRIC_RUN_ENDS: Final = "reveille.run.ends"
METRIC_RUN_ACTIVE: Final = "reveille.run.active"
METRIC_LEASE_STEALS: Final = "reveille.lease.steals"
METRIC_DELIVERIES: Final = "reveille.webhook.deliveries"
METRIC_HELD: Final = "reveille.webhook.held"
METRIC_HELD_NOW: Final = "reveille.webhook.held_now"

# Span names. Those of RPCs are the method, those of queries the query's name.
SPAN_WEBHOOK: Final = "POST /hooks/{token}"
SPAN_SCHEDULER_TICK: Final = "scheduler.tick"
SPAN_RUN: Final = "run"


def send_span(destination: str) -> str:
    """Name the span that stores a row for someone else to process."""
    return f"send {destination}"


def process_span(destination: str) -> str:
    """Name the span that processes a stored row, or an occurrence of a job."""
    return f"process {destination}"


def invoke_agent_span(agent_name: str) -> str:
    """Name the span around an agent's adapter."""
    return f"invoke_agent {agent_name}"
