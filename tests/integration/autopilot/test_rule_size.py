"""How much a rule may say: each of its versions travels in one message."""

from __future__ import annotations

from typing import TypeAlias
from uuid import UUID

import asyncpg
import grpc
from tests.integration.autopilot.conftest import (
    CREATOR,
    Service,
    edit_rule,
    edit_trigger,
    make_webhook,
    refused,
)

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


def much(number: int = 50) -> list[rule_pb.EventFilter]:
    """Give as many filters as a webhook may have, each as long as it may be: half of a rule."""
    actions = [f"{at:03}" + "\N{EURO SIGN}" * 190 for at in range(50)]
    return [rule_pb.EventFilter(event=f"event{at}", actions=actions) for at in range(number)]


async def read(service: Service, rule: rule_pb.Autopilot) -> rule_pb.Autopilot:
    request = pb.GetAutopilotRequest(autopilot_id=rule.autopilot_id)
    found: rule_pb.Autopilot = (await service.as_user(CREATOR).GetAutopilot(request)).autopilot
    return found


async def test_a_rule_grows_as_long_as_its_versions_can_be_read(
    service: Service, autopilot: rule_pb.Autopilot, rows: Rows
) -> None:
    stub = service.as_user(CREATOR)
    for _ in range(2):
        await make_webhook(service, autopilot.autopilot_id, *much())
    small = (await make_webhook(service, autopilot.autopilot_id)).trigger
    rule = await read(service, autopilot)
    too_much = grpc.StatusCode.INVALID_ARGUMENT, "TOO_LONG"
    async with refused(*too_much) as seen:
        await make_webhook(service, autopilot.autopilot_id, *much())
    assert [each.field for each in seen[0].violations] == ["webhook"]
    async with refused(*too_much):
        await edit_trigger(
            service,
            small,
            "webhook.event_filters",
            webhook=rule_pb.WebhookTrigger(event_filters=much()),
        )
    async with refused(*too_much) as seen:
        await edit_rule(service, rule, prompt="\N{GRINNING FACE}" * 100_000)
    assert [each.field for each in seen[0].violations] == ["autopilot.prompt"]
    assert (await read(service, autopilot)).etag == rule.etag
    shown = await stub.GetRuleVersion(
        pb.GetRuleVersionRequest(rule_version_id=rule.rule_version_id)
    )
    assert len(shown.rule_version.triggers) == 3


async def test_a_rule_that_says_more_already_is_edited_and_does_not_grow(
    service: Service, autopilot: rule_pb.Autopilot, rows: Rows
) -> None:
    trigger = (await make_webhook(service, autopilot.autopilot_id, *much())).trigger
    await rows.execute(
        "INSERT INTO triggers (id, autopilot_id, workspace_id, kind, enabled, label, provider,"
        " event_filters, max_body_bytes, token_sha256, publisher_user_id, synced_revision)"
        " SELECT gen_random_uuid(), autopilot_id, workspace_id, kind, enabled, label, provider,"
        " event_filters, max_body_bytes, sha256(number::text::bytea), 'x', revision"
        " FROM triggers, generate_series(1, 2) AS number WHERE id = $1",
        UUID(trigger.trigger_id),
    )
    stub = service.as_user(CREATOR)
    # As such a rule would be: this version tells of all three.
    await stub.PauseAutopilot(pb.PauseAutopilotRequest(autopilot_id=autopilot.autopilot_id))
    await edit_trigger(service, trigger, enabled=False)
    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "TOO_LONG"):
        await make_webhook(service, autopilot.autopilot_id)
    for fewer in (much(40), []):
        await edit_trigger(
            service,
            trigger,
            "webhook.event_filters",
            webhook=rule_pb.WebhookTrigger(event_filters=fewer),
        )
    await make_webhook(service, autopilot.autopilot_id)
