"""Rows: shops, payments, mail, clouds and models; and senders of any kind, by a common scheme."""

from __future__ import annotations

from typing import Any

from reveille_webhook.domain.provider import BodyHash, Computed, Provider
from reveille_webhook.domain.scheme import (
    Algorithm,
    Encoding,
    Header,
    Key,
    Kind,
    Path,
    Scheme,
    Stamp,
    Unit,
)
from reveille_webhook.providers import handshakes, special
from reveille_webhook.providers.schemes import (
    HUB_SHA256,
    body_hmac,
    listed_hmac,
    standard_webhooks,
    token,
)

_STANDARD: dict[str, Any] = {
    "schemes": (standard_webhooks(),),
    "dedupe": (Header("webhook-id"),),
    "keep": frozenset({"webhook-id", "webhook-timestamp"}),
}
_HUBSPOT_HEADER = (Header("x-hubspot-signature"),)
_HUBSPOT = (
    Scheme(
        (Header("x-hubspot-signature-v3"),),
        (Kind(Algorithm.HMAC_SHA256),),
        Encoding.BASE64,
        "{method}{url}{body}{timestamp}",
        stamp=Stamp(Header("x-hubspot-request-timestamp"), Unit.MILLISECONDS),
    ),
    Scheme(
        _HUBSPOT_HEADER,
        (Kind(Algorithm.SHA256),),
        message="{secret}{method}{url}{body}",
        when=("x-hubspot-signature-version", "v2"),
    ),
    Scheme(
        _HUBSPOT_HEADER,
        (Kind(Algorithm.SHA256),),
        message="{secret}{body}",
        when=("x-hubspot-signature-version", "v1"),
    ),
)
# The event itself is not signed, only a time and a token beside it.
_MAILGUN = Scheme(
    (Path("signature.signature"),),
    (Kind(Algorithm.HMAC_SHA256),),
    message="{timestamp}{id}",
    stamp=Stamp(Path("signature.timestamp")),
    id=Path("signature.token"),
)
_SENDGRID = Scheme(
    (Header("x-twilio-email-event-webhook-signature"),),
    (Kind(Algorithm.ECDSA_P256, key=Key.SPKI),),
    Encoding.BASE64,
    "{timestamp}{body}",
    stamp=Stamp(Header("x-twilio-email-event-webhook-timestamp")),
)
# These three stand for where the credential is; the function of the row verifies.
_ADYEN = Scheme(
    (Path("notificationItems.0.NotificationRequestItem.additionalData.hmacSignature"),),
    (Kind(Algorithm.HMAC_SHA256, key=Key.HEX),),
    Encoding.BASE64,
)
_SNS = Scheme((Path("Signature"),), (Kind(Algorithm.HMAC_SHA256),), Encoding.BASE64)
_GRAPH = Scheme((Path("value.0.clientState"),), (Kind(Algorithm.EQUALS),), Encoding.PLAIN, "")
_ANY_STATE = (Path("state"), Path("conclusion"), Path("status"))

ROWS = (
    Provider(
        name="stripe",
        schemes=(listed_hmac("stripe-signature", "t=", "v1="),),
        event=(Path("type"),),
        dedupe=(Path("id"),),
    ),
    Provider(
        name="shopify",
        schemes=(body_hmac("x-shopify-hmac-sha256", encoding=Encoding.BASE64),),
        event=(Header("x-shopify-topic"),),
        dedupe=(Header("x-shopify-webhook-id"), Header("x-shopify-event-id")),
        keep=frozenset(
            {
                "x-shopify-topic",
                "x-shopify-webhook-id",
                "x-shopify-event-id",
                "x-shopify-shop-domain",
                "x-shopify-triggered-at",
            }
        ),
        queued_status=200,
    ),
    Provider(
        name="woocommerce",
        schemes=(body_hmac("x-wc-webhook-signature", encoding=Encoding.BASE64),),
        event=(Header("x-wc-webhook-topic"), Computed(special.woocommerce_event)),
        dedupe=(Header("x-wc-webhook-delivery-id"),),
        keep=frozenset({"x-wc-webhook-topic", "x-wc-webhook-delivery-id"}),
        handshakes=handshakes.WOOCOMMERCE,
    ),
    Provider(
        name="square",
        schemes=(
            Scheme(
                (Header("x-square-hmacsha256-signature"),),
                (Kind(Algorithm.HMAC_SHA256),),
                Encoding.BASE64,
                "{url}{body}",
            ),
        ),
        event=(Path("type"),),
        dedupe=(Path("event_id"),),
    ),
    Provider(
        name="adyen",
        schemes=(_ADYEN,),
        special=special.adyen,
        event=(Path("notificationItems.0.NotificationRequestItem.eventCode"),),
        # One reference has several events, and a batch several references.
        dedupe=(BodyHash(),),
        queued_status=200,
        body=b"[accepted]",
    ),
    Provider(
        name="calendly",
        schemes=(listed_hmac("calendly-webhook-signature", "t=", "v1="),),
        event=(Path("event"),),
        dedupe=(BodyHash(),),
    ),
    Provider(
        name="hubspot",
        schemes=_HUBSPOT,
        event=(Path("0.subscriptionType"), Path("subscriptionType")),
        # A batch of items with ids of their own.
        dedupe=(BodyHash(),),
        # Behind what a plain hash signs anybody can write more, which is signed as well, but is no
        # JSON any more.
        always_json=True,
    ),
    Provider(
        name="mailgun",
        schemes=(_MAILGUN,),
        event=(Path("event-data.event"),),
        # Not first the token, although it is signed: nobody says that it stays when Mailgun tries
        # again. One that comes back tells a copy all the same, by the content key.
        dedupe=(Path("event-data.id"), Path("signature.token")),
        queued_status=200,
    ),
    Provider(
        name="sendgrid",
        schemes=(_SENDGRID,),
        event=(Path("0.event"),),
        dedupe=(BodyHash(),),
    ),
    Provider(name="standardwebhooks", event=(Path("type"), Path("event_type")), **_STANDARD),
    Provider(name="openai", event=(Path("type"),), **_STANDARD),
    Provider(name="anthropic", event=(Path("data.type"), Path("type")), **_STANDARD),
    Provider(name="replicate", event=(Path("status"),), **_STANDARD),
    Provider(
        name="svix",
        schemes=(standard_webhooks("svix"),),
        event=(Path("type"), Path("event_type")),
        dedupe=(Header("svix-id"),),
        keep=frozenset({"svix-id", "svix-timestamp"}),
    ),
    Provider(
        name="aws_sns",
        schemes=(_SNS,),
        special=special.aws_sns,
        # It says text/plain.
        always_json=True,
        demands_secret=True,
        event=(Path("Type"), Header("x-amz-sns-message-type")),
        dedupe=(Path("MessageId"), Header("x-amz-sns-message-id")),
        keep=frozenset({"x-amz-sns-message-type", "x-amz-sns-message-id", "x-amz-sns-topic-arn"}),
        handshakes=handshakes.SNS,
    ),
    Provider(
        name="msgraph",
        schemes=(_GRAPH,),
        special=special.msgraph,
        event=(Path("value.0.changeType"),),
        dedupe=(Computed(special.msgraph_dedupe), BodyHash()),
        also_actions=(Path("value.0.resource"),),
        handshakes=handshakes.MSGRAPH,
    ),
    Provider(
        name="okta",
        schemes=(token("authorization"),),
        event=(Path("data.events.0.eventType"), Path("eventType")),
        dedupe=(Path("eventId"),),
        sender=(Path("data.events.0.actor.alternateId"),),
        handshakes=handshakes.OKTA,
    ),
    Provider(
        name="cloudevents",
        schemes=(token("authorization"),),
        event=(Header("ce-type"), Path("type")),
        dedupe=(Computed(special.cloudevents_dedupe),),
        keep=frozenset({"ce-type", "ce-id", "ce-source", "ce-subject", "ce-time"}),
        handshakes=handshakes.CLOUDEVENTS,
    ),
    # Any sender: the token in the path is the credential, and a secret, once added, is checked the
    # way most senders sign.
    Provider(
        name="generic",
        schemes=(HUB_SHA256,),
        event=(Header("x-event-type"), Path("event"), Path("type")),
        dedupe=(Header("idempotency-key"), Header("x-github-delivery")),
        action=(Path("action"),),
        also_actions=_ANY_STATE,
        sender=(Path("sender.login"), Path("sender")),
        keep=frozenset({"x-event-type", "x-github-delivery"}),
    ),
    # Any sender that signs a body; the hook says which header, algorithm and encoding.
    Provider(
        name="generic_hmac",
        schemes=(body_hmac("x-signature", "sha256="),),
        event=(Header("x-event-type"), Path("event"), Path("type")),
        dedupe=(Header("idempotency-key"), Header("x-request-id")),
        action=(Path("action"),),
        also_actions=_ANY_STATE,
        sender=(Path("sender.login"), Path("sender")),
        keep=frozenset({"x-event-type", "x-request-id"}),
    ),
    # Any sender that shows one and the same credential; the hook says in which header.
    Provider(
        name="generic_token",
        schemes=(token("authorization"),),
        event=(Header("x-event-type"), Path("event"), Path("type")),
        dedupe=(Header("idempotency-key"), Header("x-request-id")),
        action=(Path("action"),),
        also_actions=_ANY_STATE,
        sender=(Path("sender.login"), Path("sender")),
        keep=frozenset({"x-event-type", "x-request-id"}),
    ),
)
