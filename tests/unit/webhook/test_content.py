"""What a credential vouches for: the same whatever its unsigned id, its time and its spelling."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import replace
from uuid import UUID

import pytest
from tests.unit.webhook.signing import KEY, NOW, Signed, samples

from reveille_webhook.domain import facts
from reveille_webhook.domain.provider import Provider, Source
from reveille_webhook.domain.request import Headers, Request
from reveille_webhook.domain.scheme import Header, fields_of
from reveille_webhook.domain.signature import verify
from reveille_webhook.domain.states import SignatureState
from reveille_webhook.providers.table import PROVIDERS

HOOK = UUID(int=7)
ADDRESS = "https://hooks.example.com/hooks/awt_token"
# Their credential is the same every time, or says nothing about what it comes with.
TOKENS = {
    "cloudevents",
    "generic_token",
    "gitlab_token",
    "monday",
    "msgraph",
    "okta",
    "telegram",
}
# Nobody says that Mailgun's token, which is signed, stays when it tries again; its event's id does.
RETRIES_FIRST = {"mailgun"}
SIGNED = [
    pytest.param(provider, one, id=f"{name}-{index}")
    for name, provider in sorted(PROVIDERS.items())
    if name not in TOKENS
    for index, one in enumerate(samples(provider))
]


def key_of(provider: str, secret: bytes, request: Request, hook: UUID = HOOK) -> bytes | None:
    """Give the content key of a request that is verified."""
    verdict = verify(PROVIDERS[provider], [secret], request, NOW)
    assert verdict.state is SignatureState.VALID
    return facts.content_key(hook, verdict, hashlib.sha256(request.body).digest())


def with_item(one: Signed, path: str, *items: object) -> Request:
    return one.request.with_body(json.dumps({path: items}).encode())


@pytest.mark.parametrize(("provider", "one"), SIGNED)
def test_what_is_signed_is_known_by_its_hook(provider: Provider, one: Signed) -> None:
    key = key_of(provider.name, one.secret, one.request)

    assert key is not None
    assert key == key_of(provider.name, one.secret, one.request)
    assert key != key_of(provider.name, one.secret, one.request, UUID(int=8))


@pytest.mark.parametrize("provider", sorted(TOKENS))
def test_a_token_vouches_for_no_content(provider: str) -> None:
    for one in samples(PROVIDERS[provider]):
        assert key_of(provider, one.secret, one.request) is None


def slack(stamp: int, body: bytes) -> Request:
    text = b"v0:%d:%b" % (stamp, body)
    signature = b"v0=" + hmac.new(KEY, text, "sha256").hexdigest().encode()
    return Request(
        [(b"x-slack-request-timestamp", b"%d" % stamp), (b"x-slack-signature", signature)], body
    )


def test_signed_again_at_another_time_it_is_the_same() -> None:
    keys = [key_of("slack", KEY, slack(NOW + late, b"{}")) for late in (0, 60)]

    assert keys[0] == keys[1]
    assert keys[0] != key_of("slack", KEY, slack(NOW, b"[]"))


def standard(message_id: bytes, stamp: int = NOW) -> Request:
    text = b"%b.%d.%b" % (message_id, stamp, b"{}")
    signature = b"v1," + base64.b64encode(hmac.digest(KEY, text, "sha256"))
    headers: Headers = [
        (b"webhook-id", message_id),
        (b"webhook-timestamp", b"%d" % stamp),
        (b"webhook-signature", signature),
    ]
    return Request(headers, b"{}")


def test_an_id_that_is_signed_with_it_makes_it_another() -> None:
    secret = b"whsec_" + base64.b64encode(KEY)
    first, again, other = (
        key_of("standardwebhooks", secret, request)
        for request in (standard(b"msg_1"), standard(b"msg_1", NOW + 60), standard(b"msg_2"))
    )

    assert first == again
    assert first != other


def test_where_the_body_is_not_signed_what_is_signed_tells() -> None:
    (mailgun,) = samples(PROVIDERS["mailgun"])
    forged = mailgun.request.body.replace(b"evt_1", b"evt_2")
    (sns,) = samples(PROVIDERS["aws_sns"])
    spaced = json.dumps(json.loads(sns.request.body), indent=1).encode()

    for name, one, body in (("mailgun", mailgun, forged), ("aws_sns", sns, spaced)):
        assert body != one.request.body
        assert key_of(name, one.secret, one.request.with_body(body)) == key_of(
            name, one.secret, one.request
        )


def test_items_put_together_anew_are_no_new_content() -> None:
    (one,) = samples(PROVIDERS["adyen"])
    ((item,),) = json.loads(one.request.body).values()
    text = b"P2::::::AUTHORISATION:true"
    other = {
        "pspReference": "P2",
        "eventCode": "AUTHORISATION",
        "success": "true",
        "additionalData": {
            "hmacSignature": base64.b64encode(hmac.digest(KEY, text, "sha256")).decode()
        },
    }
    path, second = "notificationItems", {"NotificationRequestItem": other}
    captured = {key_of("adyen", one.secret, with_item(one, path, each)) for each in (item, second)}
    put_together = {
        key_of("adyen", one.secret, with_item(one, path, *items))
        for items in ([item, item], [item, second], [second, item], [second, second, item])
    }

    assert len(captured) == 2
    assert put_together <= captured


def test_a_form_written_otherwise_is_the_same() -> None:
    (one,) = samples(PROVIDERS["twilio"])
    names = one.request.body.split(b"&")
    written = [
        b"&".join(reversed(names)),
        b"&".join([*names, names[0]]),
        one.request.body.replace(b"Body=hello", b"Bodyhell=o"),
        one.request.body.replace(b"hello", b"%68ello"),
    ]

    keys = {key_of("twilio", one.secret, one.request.with_body(each)) for each in written}

    assert keys == {key_of("twilio", one.secret, one.request)}


@pytest.mark.parametrize(
    ("provider", "header"),
    [("square", b"x-square-hmacsha256-signature"), ("hubspot", b"x-hubspot-signature-v3")],
)
def test_what_is_moved_between_address_and_body_is_the_same(provider: str, header: bytes) -> None:
    """Between the two nothing stands, so that a part of the one could be sent as the other."""
    method, stamp = (b"POST", b"%d000" % NOW) if provider == "hubspot" else (b"", b"")
    text = method + ADDRESS.encode() + b'?a=1{"id":"evt_1"}' + stamp
    signature = base64.b64encode(hmac.digest(KEY, text, "sha256"))
    headers: Headers = [(header, signature), (b"x-hubspot-request-timestamp", stamp)]
    sent = Request(headers, b'{"id":"evt_1"}', "POST", ADDRESS + "?a=1")
    moved = replace(sent, url=ADDRESS + '?a=1{"id":', body=b'"evt_1"}')

    assert key_of(provider, KEY, sent) == key_of(provider, KEY, moved)


def is_signed(provider: Provider, source: Source) -> bool:
    """Tell whether a place for ids is part of what every scheme of a row signs."""
    if all(scheme.id == source for scheme in provider.schemes):
        return True
    if isinstance(source, Header):
        return False
    # Rows with a function of their own stand for what it verifies.
    return provider.name in {"twilio", "aws_sns"} or (
        provider.special is None and all("body" in fields_of(scheme) for scheme in provider.schemes)
    )


@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=lambda each: each.name)
def test_an_id_that_is_signed_counts_before_one_that_is_not(provider: Provider) -> None:
    signed = [is_signed(provider, source) for source in provider.dedupe]

    in_order = signed == sorted(signed, reverse=True)
    assert in_order is (provider.name not in RETRIES_FIRST)


def test_a_signed_id_is_told_by_what_was_signed() -> None:
    sns = PROVIDERS["aws_sns"]
    headers = [(b"x-amz-sns-message-id", b"other")]

    assert facts.name(sns, Request(headers, b""), {"MessageId": "m-1"}).dedupe_key == "m-1"
    both = [(b"idempotency-key", b"other"), (b"webhook-id", b"id-1")]
    assert facts.name(PROVIDERS["gitlab"], Request(both, b""), {}).dedupe_key == "id-1"
    assert facts.name(PROVIDERS["gitlab_token"], Request(both, b""), {}).dedupe_key == "other"
