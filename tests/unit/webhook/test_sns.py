"""Amazon SNS: what is signed line by line, and for how long a confirmation counts."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.unit.webhook.signing import NOW

from reveille_webhook.domain.request import Request
from reveille_webhook.domain.signature import verify
from reveille_webhook.domain.states import SignatureState
from reveille_webhook.providers.special import SNS_CONFIRMS_FOR
from reveille_webhook.providers.table import PROVIDERS

KEY = rsa.generate_private_key(65537, 2048)
PUBLIC = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
NOTIFICATION = {
    "Message": "hello",
    "MessageId": "m-1",
    "Subject": "greeting",
    "Timestamp": "2026-09-21T14:13:20.000Z",
    "TopicArn": "arn:aws:sns:eu-west-1:1:t",
    "Type": "Notification",
}
CONFIRMATION = {
    "Message": "You have chosen to subscribe.",
    "MessageId": "m-2",
    "SubscribeURL": "https://sns.example.com/?Action=ConfirmSubscription",
    "Timestamp": "2026-09-21T14:13:20.000Z",
    "Token": "t-1",
    "TopicArn": "arn:aws:sns:eu-west-1:1:t",
    "Type": "SubscriptionConfirmation",
}


def lines_of(fields: Mapping[str, str]) -> str:
    return "".join(f"{name}\n{value}\n" for name, value in fields.items())


def signature_of(fields: Mapping[str, str]) -> str:
    text = lines_of(fields).encode()
    return base64.b64encode(KEY.sign(text, PKCS1v15(), SHA256())).decode()


def state_of(fields: Mapping[str, object], signature: str, now: float = NOW) -> SignatureState:
    body = json.dumps({**fields, "SignatureVersion": "2", "Signature": signature}).encode()
    return verify(PROVIDERS["aws_sns"], [PUBLIC], Request([], body), now).state


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


@pytest.mark.parametrize("kind", ["SubscriptionConfirmation", "UnsubscribeConfirmation"])
@pytest.mark.parametrize(
    ("late", "valid"),
    [
        (0, True),
        (SNS_CONFIRMS_FOR, True),
        (SNS_CONFIRMS_FOR + 1, False),
        (-300, True),
        (-301, False),
    ],
)
def test_a_confirmation_counts_for_as_long_as_its_address(
    kind: str, late: int, valid: bool
) -> None:
    fields = {**CONFIRMATION, "Timestamp": at(NOW), "Type": kind}

    state = state_of(fields, signature_of(fields), NOW + late)

    assert (state is SignatureState.VALID) is valid


@pytest.mark.parametrize("written", ["", "yesterday", "2026-09-21T14:13:20.000"])
def test_a_confirmation_without_a_time_is_refused(written: str) -> None:
    fields = {**CONFIRMATION, "Timestamp": written}

    assert state_of(fields, signature_of(fields)) is SignatureState.INVALID


def test_a_notification_may_be_late_and_without_a_subject() -> None:
    without = {name: value for name, value in NOTIFICATION.items() if name != "Subject"}

    for fields in (NOTIFICATION, without):
        signature = signature_of(fields)
        assert state_of(fields, signature, NOW + 30 * 86_400) is SignatureState.VALID
        for name in fields:
            others = {each: value for each, value in fields.items() if each != name}
            assert state_of(others, signature) is SignatureState.INVALID


def test_no_line_passes_for_another_field() -> None:
    """Whoever may publish could write lines into a message that look like what is signed."""
    behind = {name: NOTIFICATION[name] for name in ("MessageId", "Timestamp", "TopicArn", "Type")}
    written = {**behind, "MessageId": "m-7", "TopicArn": "another"}
    sent = {"Message": "hello\n" + lines_of(written).rstrip("\n"), **behind}
    signature = signature_of(sent)
    in_its_type = {"Message": "hello", **written}
    in_its_type["Type"] += "\n" + lines_of(behind).rstrip("\n")
    in_its_topic = {**in_its_type, "Type": "Notification"}
    in_its_topic["TopicArn"] += "\nType\n" + in_its_type["Type"].removesuffix(
        "\nType\nNotification"
    )
    in_the_message = {"Message": lines_of(sent).removeprefix("Message\n").rstrip("\n")}
    but_its_type = {**in_the_message, "Type": "Notification"}
    but_its_type["Message"] = in_the_message["Message"].removesuffix("\nType\nNotification")

    assert state_of(sent, signature) is SignatureState.VALID
    for forged in (in_its_type, in_its_topic, in_the_message, but_its_type):
        assert lines_of(forged) == lines_of(sent)
        assert state_of(forged, signature) is SignatureState.INVALID
