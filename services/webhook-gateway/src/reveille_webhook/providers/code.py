"""Rows: where code lives and is built, and what tells about its trouble."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reveille_webhook.domain.provider import BodyHash, Provider
from reveille_webhook.domain.scheme import Algorithm, Header, Path, Stamp, Unit
from reveille_webhook.providers.schemes import (
    HUB_OLD_HEADER_SHA256,
    HUB_SHA1,
    HUB_SHA256,
    body_hmac,
    listed_hmac,
    standard_webhooks,
    token,
)

_STATES = (Path("state"), Path("conclusion"), Path("status"))
_GITHUB: dict[str, Any] = {
    "event": (Header("x-github-event"),),
    "dedupe": (Header("x-github-delivery"), Header("idempotency-key")),
    "action": (Path("action"),),
    "also_actions": _STATES,
    "sender": (Path("sender.login"),),
    "keep": frozenset(
        {
            "x-github-event",
            "x-github-delivery",
            "x-github-hook-id",
            "x-github-hook-installation-target-id",
            "x-github-hook-installation-target-type",
        }
    ),
}
# Not X-Gitlab-Event-UUID: hooks that set each other off share it.
_GITLAB_ID = Header("idempotency-key")
_GITLAB: dict[str, Any] = {
    "event": (Header("x-gitlab-event"), Path("object_kind")),
    "action": (Path("object_attributes.action"), Path("action")),
    "also_actions": (Path("object_attributes.state"), Path("object_attributes.status")),
    "sender": (Path("user.username"), Path("user_username")),
    "keep": frozenset({"x-gitlab-event", "x-gitlab-event-uuid", "x-gitlab-instance"}),
}
# Its time is in the body, in milliseconds, and a minute is what it asks for.
_LINEAR = replace(
    body_hmac("linear-signature"),
    stamp=Stamp(Path("webhookTimestamp"), Unit.MILLISECONDS, past=60, future=60),
)

ROWS = (
    Provider(name="github", schemes=(HUB_SHA256,), **_GITHUB),
    # For servers too old to send the better one; where that comes along it is the one that counts.
    Provider(name="github_sha1", schemes=(HUB_SHA256, HUB_SHA1), **_GITHUB),
    Provider(
        name="gitea",
        schemes=(body_hmac("x-gitea-signature"),),
        event=(Header("x-gitea-event"),),
        dedupe=(Header("x-gitea-delivery"),),
        action=(Path("action"),),
        sender=(Path("sender.login"),),
        keep=frozenset({"x-gitea-event", "x-gitea-delivery"}),
    ),
    Provider(
        name="gitlab",
        schemes=(standard_webhooks(),),
        # The same id twice, of which the first is signed.
        dedupe=(Header("webhook-id"), _GITLAB_ID),
        **_GITLAB,
    ),
    Provider(
        name="gitlab_token",
        schemes=(token("x-gitlab-token"),),
        dedupe=(_GITLAB_ID,),
        **_GITLAB,
    ),
    Provider(
        name="bitbucket",
        schemes=(HUB_OLD_HEADER_SHA256,),
        event=(Header("x-event-key"),),
        dedupe=(Header("x-request-uuid"),),
        sender=(Path("actor.nickname"), Path("actor.name")),
        retry=Header("x-attempt-number"),
        keep=frozenset({"x-event-key", "x-request-uuid", "x-hook-uuid", "x-attempt-number"}),
    ),
    Provider(
        name="jira",
        schemes=(HUB_OLD_HEADER_SHA256,),
        event=(Path("webhookEvent"),),
        dedupe=(Header("x-atlassian-webhook-identifier"),),
        action=(Path("issue_event_type_name"),),
        sender=(Path("user.accountId"),),
        retry=Header("x-atlassian-webhook-retry"),
        keep=frozenset(
            {
                "x-atlassian-webhook-identifier",
                "x-atlassian-webhook-retry",
                "x-atlassian-webhook-flow",
            }
        ),
    ),
    Provider(
        name="linear",
        schemes=(_LINEAR,),
        event=(Header("linear-event"), Path("type")),
        dedupe=(Header("linear-delivery"),),
        action=(Path("action"),),
        sender=(Path("actor.id"),),
        keep=frozenset({"linear-event", "linear-delivery"}),
        queued_status=200,
    ),
    Provider(
        name="sentry",
        # Sentry-Hook-Timestamp is not signed, and says nothing.
        schemes=(body_hmac("sentry-hook-signature"),),
        event=(Header("sentry-hook-resource"),),
        dedupe=(Header("request-id"),),
        action=(Path("action"),),
        sender=(Path("actor.name"),),
        keep=frozenset({"sentry-hook-resource", "request-id"}),
        # It waits for a second, and a thousand of those unsubscribe the hook.
        budget=0.6,
    ),
    Provider(
        name="pagerduty",
        schemes=(body_hmac("x-pagerduty-signature", "v1=", separator=","),),
        event=(Path("event.event_type"),),
        dedupe=(Header("x-webhook-id"),),
        sender=(Path("event.agent.id"),),
        keep=frozenset({"x-webhook-id", "x-webhook-subscription"}),
    ),
    Provider(
        name="circleci",
        schemes=(body_hmac("circleci-signature", "v1=", separator=","),),
        event=(Header("circleci-event-type"), Path("type")),
        dedupe=(Path("id"),),
        also_actions=(Path("workflow.status"), Path("job.status")),
        keep=frozenset({"circleci-event-type"}),
    ),
    Provider(
        name="buildkite",
        schemes=(listed_hmac("x-buildkite-signature", "timestamp=", "signature="),),
        event=(Header("x-buildkite-event"), Path("event")),
        dedupe=(BodyHash(),),
        also_actions=(Path("build.state"),),
        sender=(Path("sender.name"),),
        keep=frozenset({"x-buildkite-event"}),
    ),
    Provider(
        name="vercel",
        schemes=(body_hmac("x-vercel-signature", algorithm=Algorithm.HMAC_SHA1),),
        event=(Path("type"),),
        dedupe=(Path("id"),),
    ),
)
