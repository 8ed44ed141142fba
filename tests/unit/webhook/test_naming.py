"""What a delivery is called, which id it has and who set it off, sender by sender."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from reveille_webhook.domain import facts
from reveille_webhook.domain.request import Request
from reveille_webhook.providers.table import PROVIDERS

BODY_S_OWN = "the hash of the body"
OKTA = {"eventType": "user.session.start", "actor": {"alternateId": "ada@example.com"}}


@pytest.mark.parametrize(
    ("provider", "document", "event", "key", "sender"),
    [
        # What a bot says names the person as well, and it is the bot that a hook leaves out.
        (
            "slack",
            {"event_id": "Ev1", "event": {"type": "message", "bot_id": "B1", "user": "U1"}},
            "message",
            "Ev1",
            "B1",
        ),
        ("slack", {"command": "/run", "trigger_id": "1.2", "user_id": "U1"}, "/run", "1.2", "U1"),
        (
            "slack",
            {"type": "block_actions", "trigger_id": "1.2", "user": {"id": "U1"}},
            "block_actions",
            "1.2",
            "U1",
        ),
        (
            "telegram",
            {"update_id": 1, "message": {"from": {"id": 5, "username": "ada"}}},
            "message",
            "1",
            "ada",
        ),
        (
            "x",
            {"for_user_id": "17", "tweet_create_events": [{}]},
            "tweet_create_events",
            BODY_S_OWN,
            "17",
        ),
        (
            "monday",
            {"event": {"type": "create_pulse", "triggerUuid": "u-1", "userId": 7}},
            "create_pulse",
            "u-1",
            "7",
        ),
        (
            "trello",
            {"action": {"id": "a-1", "type": "updateCard", "memberCreator": {"username": "ada"}}},
            "updateCard",
            "a-1",
            "ada",
        ),
        (
            "mailgun",
            {"event-data": {"event": "failed", "id": "m-1"}, "signature": {"token": "t-1"}},
            "failed",
            "m-1",
            "",
        ),
        ("mailgun", {"signature": {"token": "t-1"}}, "webhook.received", "t-1", ""),
        (
            "notion",
            {"type": "page.created", "id": "n-1", "authors": [{"id": "u-1"}]},
            "page.created",
            "n-1",
            "u-1",
        ),
        (
            "asana",
            {"events": [{"resource": {"resource_type": "task"}, "user": {"gid": "12"}}]},
            "task",
            BODY_S_OWN,
            "12",
        ),
        (
            "zoom",
            {"event": "meeting.started", "payload": {"operator_id": "o-1"}},
            "meeting.started",
            BODY_S_OWN,
            "o-1",
        ),
        (
            "pagerduty",
            {"event": {"event_type": "incident.triggered", "agent": {"id": "P1"}}},
            "incident.triggered",
            None,
            "P1",
        ),
        (
            "okta",
            {"eventId": "e-1", "eventType": "event_hook", "data": {"events": [OKTA]}},
            "user.session.start",
            "e-1",
            "ada@example.com",
        ),
        (
            "ms_teams",
            {"type": "message", "id": "1", "from": {"id": "29:1"}},
            "message",
            "1",
            "29:1",
        ),
        (
            "meta",
            {"object": "page", "entry": [{"changes": [{"field": "feed"}]}]},
            "feed",
            BODY_S_OWN,
            "",
        ),
        ("msgraph", {"value": [{"changeType": "created", "id": "1"}]}, "created", "1", ""),
        # An id of several together is the id of none of them.
        (
            "msgraph",
            {"value": [{"changeType": "created", "id": "1"}, {"id": "2"}]},
            "created",
            BODY_S_OWN,
            "",
        ),
        (
            "jira",
            {"webhookEvent": "jira:issue_updated", "user": {"accountId": "a-1"}},
            "jira:issue_updated",
            None,
            "a-1",
        ),
        ("bitbucket", {"actor": {"nickname": "ada", "name": "A"}}, "webhook.received", None, "ada"),
        ("gitlab", {"object_kind": "push", "user_username": "ada"}, "push", None, "ada"),
        ("linear", {"type": "Issue", "actor": {"id": "u-1"}}, "Issue", None, "u-1"),
        (
            "buildkite",
            {"event": "build.finished", "sender": {"name": "Ada"}},
            "build.finished",
            BODY_S_OWN,
            "Ada",
        ),
        (
            "twilio",
            {"MessageSid": "SM1", "From": "+15550100"},
            "message.inbound",
            "SM1",
            "+15550100",
        ),
        ("discord", {"type": 1, "event": {"type": "ENTITLEMENT"}}, "ENTITLEMENT", BODY_S_OWN, ""),
        ("discord", {"type": 2, "id": "i-1"}, "INTERACTION_2", "i-1", ""),
    ],
)
def test_a_delivery_is_named_as_its_sender_names_it(
    provider: str, document: Any, event: str, key: str | None, sender: str
) -> None:
    body = json.dumps(document).encode()
    if key == BODY_S_OWN:
        key = f"body:{hashlib.sha256(body).hexdigest()}"

    naming = facts.name(PROVIDERS[provider], Request([], body), document)

    assert (naming.event, naming.dedupe_key, naming.sender) == (event, key, sender)


@pytest.mark.parametrize(
    ("provider", "document", "actions"),
    [
        ("circleci", {"workflow": {"status": "failed"}}, ("failed",)),
        ("circleci", {"job": {"status": "failed"}}, ("failed",)),
        ("buildkite", {"build": {"state": "failed"}}, ("failed",)),
        (
            "gitlab",
            {"object_attributes": {"action": "merge", "state": "merged", "status": "success"}},
            ("merge", "merged", "success"),
        ),
        (
            "github",
            {
                "action": "completed",
                "state": "open",
                "conclusion": "failure",
                "status": "completed",
            },
            ("completed", "open", "failure"),
        ),
        ("msgraph", {"value": [{"resource": "me/messages"}]}, ("me/messages",)),
        ("slack", {"event": {"subtype": "bot_message"}}, ("bot_message",)),
        ("jira", {"issue_event_type_name": "issue_updated"}, ("issue_updated",)),
    ],
)
def test_what_a_filter_may_take_for_the_action_is_told_once(
    provider: str, document: Any, actions: tuple[str, ...]
) -> None:
    assert facts.name(PROVIDERS[provider], Request([], b""), document).actions == actions


def test_a_body_that_is_empty_is_no_id() -> None:
    assert facts.name(PROVIDERS["meta"], Request([], b""), {}).dedupe_key is None
