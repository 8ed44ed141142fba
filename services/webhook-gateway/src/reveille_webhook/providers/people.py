"""Rows: where people talk, ask for help, and share work."""

from __future__ import annotations

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
    HUB_SHA1,
    body_hmac,
    stamped_hmac,
    token,
)

_DISCORD = Scheme(
    (Header("x-signature-ed25519"),),
    (Kind(Algorithm.ED25519, key=Key.HEX),),
    message="{timestamp}{body}",
    stamp=Stamp(Header("x-signature-timestamp")),
)
_TWILIO = body_hmac("x-twilio-signature", algorithm=Algorithm.HMAC_SHA1, encoding=Encoding.BASE64)

ROWS = (
    Provider(
        name="slack",
        schemes=(
            stamped_hmac(
                "x-slack-signature", "x-slack-request-timestamp", "v0:{timestamp}:{body}", "v0="
            ),
        ),
        event=(Path("event.type"), Path("type"), Path("command")),
        dedupe=(Path("event_id"), Path("trigger_id")),
        action=(Path("event.subtype"),),
        sender=(Path("event.bot_id"), Path("event.user"), Path("user_id"), Path("user.id")),
        retry=Header("x-slack-retry-num"),
        keep=frozenset({"x-slack-retry-num", "x-slack-retry-reason"}),
        handshakes=handshakes.SLACK,
        queued_status=200,
    ),
    Provider(
        name="discord",
        schemes=(_DISCORD,),
        event=(Path("event.type"), Computed(special.discord_event)),
        dedupe=(Path("id"), BodyHash()),
        # Its probes send bad signatures, and drop a hook that takes them.
        demands_secret=True,
        handshakes=handshakes.DISCORD,
        status=204,
        queued_status=204,
        body=b"",
    ),
    Provider(
        name="ms_teams",
        schemes=(body_hmac("authorization", "HMAC ", encoding=Encoding.BASE64, key=Key.BASE64),),
        event=(Path("type"),),
        dedupe=(Path("id"),),
        sender=(Path("from.id"),),
        queued_status=200,
    ),
    Provider(
        name="telegram",
        schemes=(token("x-telegram-bot-api-secret-token"),),
        event=(Computed(special.telegram_event),),
        dedupe=(Path("update_id"),),
        sender=(Path("message.from.username"), Path("message.from.id")),
        queued_status=200,
    ),
    Provider(
        name="meta",
        schemes=(body_hmac("x-hub-signature-256", "sha256=", key=Key.META),),
        event=(Path("entry.0.changes.0.field"), Path("object")),
        # Entries have ids, a whole batch has none.
        dedupe=(BodyHash(),),
        handshakes=handshakes.META,
        queued_status=200,
    ),
    Provider(
        name="twilio",
        schemes=(_TWILIO,),
        special=special.twilio,
        event=(Computed(special.twilio_event),),
        dedupe=(Computed(special.twilio_dedupe), Header("i-twilio-idempotency-token")),
        sender=(Path("From"),),
        keep=frozenset({"i-twilio-idempotency-token"}),
        queued_status=200,
    ),
    Provider(
        name="zoom",
        schemes=(
            stamped_hmac(
                "x-zm-signature", "x-zm-request-timestamp", "v0:{timestamp}:{body}", "v0="
            ),
        ),
        event=(Path("event"),),
        # Not X-Zm-Trackingid, which is not signed: the body has the event's moment.
        dedupe=(BodyHash(),),
        sender=(Path("payload.operator_id"),),
        handshakes=handshakes.ZOOM,
        queued_status=200,
    ),
    Provider(
        name="zendesk",
        schemes=(
            stamped_hmac(
                "x-zendesk-webhook-signature",
                "x-zendesk-webhook-signature-timestamp",
                "{timestamp}{body}",
                encoding=Encoding.BASE64,
                unit=Unit.ISO,
            ),
        ),
        event=(Path("type"), Path("event_type")),
        dedupe=(Computed(special.zendesk_dedupe), Header("x-zendesk-webhook-invocation-id")),
        keep=frozenset({"x-zendesk-webhook-id", "x-zendesk-webhook-invocation-id"}),
    ),
    Provider(
        name="intercom",
        schemes=(HUB_SHA1,),
        event=(Path("topic"),),
        dedupe=(Path("id"),),
    ),
    Provider(
        name="typeform",
        schemes=(body_hmac("typeform-signature", "sha256=", encoding=Encoding.BASE64),),
        event=(Path("event_type"),),
        dedupe=(Path("event_id"),),
    ),
    Provider(
        name="notion",
        schemes=(body_hmac("x-notion-signature", "sha256="),),
        event=(Path("type"),),
        dedupe=(Path("id"),),
        sender=(Path("authors.0.id"),),
        handshakes=handshakes.NOTION,
    ),
    Provider(
        name="asana",
        schemes=(body_hmac("x-hook-signature"),),
        event=(Path("events.0.resource.resource_type"),),
        action=(Path("events.0.action"),),
        dedupe=(BodyHash(),),
        sender=(Path("events.0.user.gid"),),
        handshakes=handshakes.ASANA,
    ),
    Provider(
        name="monday",
        schemes=(token("authorization"),),
        special=special.monday,
        event=(Path("event.type"),),
        dedupe=(Path("event.triggerUuid"), BodyHash()),
        sender=(Path("event.userId"),),
        handshakes=handshakes.MONDAY,
        queued_status=200,
    ),
    Provider(
        name="trello",
        schemes=(
            Scheme(
                (Header("x-trello-webhook"),),
                (Kind(Algorithm.HMAC_SHA1),),
                Encoding.BASE64,
                "{body}{url}",
            ),
        ),
        event=(Path("action.type"),),
        dedupe=(Path("action.id"), BodyHash()),
        sender=(Path("action.memberCreator.username"),),
        handshakes=handshakes.TRELLO,
        queued_status=200,
    ),
    Provider(
        name="dropbox",
        schemes=(body_hmac("x-dropbox-signature"),),
        event=(Computed(special.dropbox_event),),
        handshakes=handshakes.DROPBOX,
        queued_status=200,
    ),
    Provider(
        name="x",
        schemes=(body_hmac("x-twitter-webhooks-signature", "sha256=", encoding=Encoding.BASE64),),
        # It signs a word for whoever asks: what is no JSON may be such a word.
        always_json=True,
        event=(Computed(special.x_event),),
        dedupe=(BodyHash(),),
        sender=(Path("for_user_id"),),
        handshakes=handshakes.X,
        queued_status=200,
    ),
)
