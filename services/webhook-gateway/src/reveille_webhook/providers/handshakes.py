"""What senders ask before they send, or now and then: one function for each question."""

from __future__ import annotations

import base64
import hmac
import json
import re

from reveille_webhook.domain.keys import VERIFY
from reveille_webhook.domain.provider import Adopted, Asked, Handshake, Reply
from reveille_webhook.domain.request import at_path, text_of, values_of

_LONGEST = 2000
_SHORTEST_SECRET = 16
_JSON = "application/json"
# What we sign for whoever asks must never be something that a delivery could be.
_TOKEN = re.compile(r"[A-Za-z0-9_+/=-]{1,200}")


def _json(document: object) -> Reply:
    return Reply(body=json.dumps(document, separators=(",", ":")).encode(), content_type=_JSON)


def _text(asked: Asked, path: str) -> str:
    found = at_path(asked.document, path)
    return found[:_LONGEST] if isinstance(found, str) else ""


def _slack(asked: Asked) -> Reply | None:
    if _text(asked, "type") != "url_verification":
        return None
    return _json({"challenge": _text(asked, "challenge")})


def _discord_interaction(asked: Asked) -> Reply | None:
    document = asked.document
    if not isinstance(document, dict) or document.get("type") != 1 or "event" in document:
        return None
    return _json({"type": 1})


def _discord_event(asked: Asked) -> Reply | None:
    document = asked.document
    if not isinstance(document, dict) or document.get("type") != 0 or "event" in document:
        return None
    return Reply(204, content_type=_JSON)


def _zoom(asked: Asked) -> Reply | None:
    plain = _text(asked, "payload.plainToken")
    secret = next((each for each in asked.secrets if each), None)
    if _text(asked, "event") != "endpoint.url_validation" or secret is None:
        return None
    if _TOKEN.fullmatch(plain) is None:
        return Reply(400)
    encrypted = hmac.digest(secret, plain.encode("utf-8", "replace"), "sha256").hex()
    return _json({"plainToken": plain, "encryptedToken": encrypted})


def _meta(asked: Asked) -> Reply | None:
    """Know the token: a secret that is one by its prefix, or any, where none is."""
    token = asked.query.get("hub.verify_token", "").encode("utf-8", "replace")
    if asked.query.get("hub.mode") != "subscribe" or not token:
        return None
    tokens = [each for each in asked.secrets if each.startswith(VERIFY)] or asked.secrets
    known = [hmac.compare_digest(each, token) for each in tokens]
    if not any(known):
        return Reply(403)
    return Reply(body=asked.query.get("hub.challenge", "")[:_LONGEST].encode("utf-8", "replace"))


def _msgraph(asked: Asked) -> Reply | None:
    if "validationToken" not in asked.query:
        return None
    return Reply(
        body=asked.query["validationToken"][:_LONGEST].encode("utf-8", "replace"),
        content_type="text/plain",
    )


def _okta(asked: Asked) -> Reply | None:
    challenge = text_of(asked.request.headers, "x-okta-verification-challenge", _LONGEST)
    return _json({"verification": challenge}) if challenge else None


def _asana(asked: Asked) -> Adopted | Reply | None:
    """Take the secret that comes with the question, once: a later one is not believed."""
    values = values_of(asked.request.headers, "x-hook-secret")
    if not values:
        return None
    secret = values[0]
    reply = Reply(headers=((b"x-hook-secret", secret),))
    if any(hmac.compare_digest(secret, each) for each in asked.secrets):
        return reply
    if len(values) > 1 or asked.secrets or not _SHORTEST_SECRET <= len(secret) <= 1024:
        return Reply(401)
    return Adopted(reply, secret)


def _monday(asked: Asked) -> Reply | None:
    document = asked.document
    if not isinstance(document, dict) or set(document) != {"challenge"}:
        return None
    return _json({"challenge": _text(asked, "challenge")})


def _dropbox(asked: Asked) -> Reply | None:
    if "challenge" not in asked.query:
        return None
    return Reply(
        body=asked.query["challenge"][:_LONGEST].encode("utf-8", "replace"),
        headers=((b"x-content-type-options", b"nosniff"),),
    )


def _x(asked: Asked) -> Reply | None:
    token = asked.query.get("crc_token", "")
    secret = next((each for each in asked.secrets if each), None)
    if not token or secret is None:
        return None
    if _TOKEN.fullmatch(token) is None:
        return Reply(400)
    digest = hmac.digest(secret, token.encode("utf-8", "replace"), "sha256")
    return _json({"response_token": "sha256=" + base64.b64encode(digest).decode()})


def _probe(asked: Asked) -> Reply | None:  # noqa: ARG001 - it only asks whether somebody is there
    return Reply()


def _cloudevents(asked: Asked) -> Reply | None:
    origin = text_of(asked.request.headers, "webhook-request-origin", _LONGEST)
    if not origin:
        return None
    return Reply(
        headers=(
            (b"webhook-allowed-origin", origin.encode("latin-1", "replace")),
            (b"webhook-allowed-rate", b"*"),
            (b"allow", b"POST"),
        )
    )


def _notion(asked: Asked) -> Reply | None:
    document = asked.document
    if not isinstance(document, dict) or set(document) != {"verification_token"}:
        return None
    return Reply()


def _sns(asked: Asked) -> Reply | None:
    kinds = {"SubscriptionConfirmation", "UnsubscribeConfirmation"}
    return Reply() if _text(asked, "Type") in kinds else None


def _woocommerce(asked: Asked) -> Reply | None:
    return Reply() if re.fullmatch(rb"webhook_id=[0-9]{1,20}", asked.request.body) else None


SLACK = (Handshake("url_verification", _slack),)
DISCORD = (
    Handshake("PING", _discord_interaction),
    Handshake("PING", _discord_event),
)
ZOOM = (Handshake("url_validation", _zoom),)
META = (Handshake("hub.challenge", _meta, method="GET", unsigned=True),)
MSGRAPH = (Handshake("validation_token", _msgraph, unsigned=True),)
OKTA = (Handshake("verification", _okta, method="GET", unsigned=True),)
ASANA = (Handshake("hook_secret", _asana, unsigned=True),)
MONDAY = (Handshake("challenge", _monday, unsigned=True),)
DROPBOX = (Handshake("challenge", _dropbox, method="GET", unsigned=True),)
X = (Handshake("crc", _x, method="GET", unsigned=True),)
TRELLO = (Handshake("probe", _probe, method="HEAD", unsigned=True),)
CLOUDEVENTS = (Handshake("validation", _cloudevents, method="OPTIONS", unsigned=True),)
# People have to read these: the one brings the secret, the other the address that confirms.
NOTION = (Handshake("verification_token", _notion, kept=True),)
SNS = (Handshake("confirmation", _sns, kept=True),)
WOOCOMMERCE = (Handshake("ping", _woocommerce, unsigned=True),)
