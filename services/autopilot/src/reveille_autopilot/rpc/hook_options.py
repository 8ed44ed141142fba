"""What a webhook's hook does otherwise than usual, on its way to the gateway."""

from __future__ import annotations

import json

from google.protobuf.json_format import MessageToDict

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille_runtime.validation import Violations

LONGEST = 20_000


def read(found: Violations, given: rule_pb.WebhookTrigger) -> dict[str, object]:
    """Read what the gateway shall do otherwise than usual, which is the gateway's to judge."""
    if not given.HasField("options"):
        return {}
    read: dict[str, object] = MessageToDict(given.options, preserving_proto_field_name=True)
    text = json.dumps(read)
    if len(text) > LONGEST:
        found.add("webhook.options", f"is longer than {LONGEST} characters", "INVALID_FIELD")
    if "\\u0000" in text:
        found.add("webhook.options", "holds a character that cannot be stored", "INVALID_FIELD")
    return read
