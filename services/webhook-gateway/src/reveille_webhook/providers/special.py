"""Verification where no scheme fits: Adyen, AWS SNS, Microsoft Graph, monday, Twilio.

Like a scheme, none of them ever raises, and each takes one spelling of a credential only.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA1, SHA256, HashAlgorithm
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

from reveille_webhook.domain.document import document_of, form_of, query_of
from reveille_webhook.domain.keys import key_of, seconds_of, signature_of
from reveille_webhook.domain.parsing import FORM
from reveille_webhook.domain.request import Request, at_path, values_of
from reveille_webhook.domain.scheme import Encoding, Key, Unit
from reveille_webhook.domain.states import SignatureState
from reveille_webhook.domain.verdict import INVALID, MISSING, Verdict

_ADYEN = (
    "pspReference",
    "originalReference",
    "merchantAccountCode",
    "merchantReference",
    "amount.value",
    "amount.currency",
    "eventCode",
    "success",
)
_SNS_NOTIFICATION = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
_SNS_CONFIRMATION = (
    "Message",
    "MessageId",
    "SubscribeURL",
    "Timestamp",
    "Token",
    "TopicArn",
    "Type",
)
_SNS_KINDS = {
    "Notification": _SNS_NOTIFICATION,
    "SubscriptionConfirmation": _SNS_CONFIRMATION,
    "UnsubscribeConfirmation": _SNS_CONFIRMATION,
}
# All that is signed has to be there but this.
_SNS_OPTIONAL = "Subject"
# Longer than the address in it counts: one that is older was kept by somebody.
SNS_CONFIRMS_FOR = 3 * 86_400
_SNS_HASHES: dict[str, type[HashAlgorithm]] = {"1": SHA1, "2": SHA256}
_SKEW = 300


def adyen(secrets: tuple[bytes, ...], request: Request, now: float) -> Verdict:  # noqa: ARG001 - no time is signed
    """Verify every item of a notification by the signature inside it; all need the same secret."""
    items = at_path(document_of(request.body), "notificationItems")
    if not isinstance(items, list) or not items:
        return MISSING
    signed, given = [], []
    for item in items:
        inner = at_path(item, "NotificationRequestItem")
        signature = at_path(inner, "additionalData.hmacSignature")
        if not isinstance(signature, str):
            return MISSING
        given.append(signature_of(signature.encode("utf-8", "replace"), Encoding.BASE64))
        fields = [at_path(inner, path) for path in _ADYEN]
        text = ":".join("" if each is None else str(each) for each in fields)
        signed.append(text.encode("utf-8", "replace"))
    for index, secret in enumerate(secrets):
        key = key_of(secret, Key.HEX)
        if key is not None and all(
            each is not None and hmac.compare_digest(hmac.digest(key, text, "sha256"), each)
            for text, each in zip(signed, given, strict=True)
        ):
            # Items are signed one by one: one stands for all, whatever they are put together with.
            return Verdict(SignatureState.VALID, index, min(signed))
    return INVALID


def aws_sns(secrets: tuple[bytes, ...], request: Request, now: float) -> Verdict:
    """Verify by the public key that the hook holds as its secret, in PEM or base64 of its DER.

    The certificate that a message names is never fetched: whoever writes messages chooses its
    address. Of a notification no time is bounded: nobody says how long it may be tried again.
    """
    document = document_of(request.body)
    if not isinstance(document, dict) or not isinstance(document.get("Signature"), str):
        return MISSING
    signature = signature_of(document["Signature"].encode("utf-8", "replace"), Encoding.BASE64)
    digest = _SNS_HASHES.get(str(document.get("SignatureVersion")))
    message = _sns_message(document, now)
    if signature is None or digest is None or message is None:
        return INVALID
    for index, secret in enumerate(secrets):
        if _rsa_matches(secret, signature, message, digest()):
            return Verdict(SignatureState.VALID, index, message)
    return INVALID


def _sns_message(document: dict[str, Any], now: float) -> bytes | None:
    """Give what is signed; None where it leaves open which line is whose, or is too old."""
    kind = document.get("Type")
    names = _SNS_KINDS.get(kind) if isinstance(kind, str) else None
    if names is None:
        return None
    lines = [
        (name, document.get(name)) for name in names if name in document or name != _SNS_OPTIONAL
    ]
    # Only the message itself may be of several lines, or a part of it could pass for another field.
    if not all(
        isinstance(value, str) and (name == "Message" or "\n" not in value) for name, value in lines
    ):
        return None
    if kind != "Notification":
        moment = seconds_of(document["Timestamp"].encode("utf-8", "replace"), Unit.ISO)
        if moment is None or not -SNS_CONFIRMS_FOR <= moment - now <= _SKEW:
            return None
    return "".join(f"{name}\n{value}\n" for name, value in lines).encode("utf-8", "replace")


def _rsa_matches(secret: bytes, signature: bytes, message: bytes, digest: HashAlgorithm) -> bool:
    try:
        if secret.lstrip().startswith(b"-----BEGIN"):
            public = load_pem_public_key(secret)
        else:
            public = load_der_public_key(key_of(secret, Key.SPKI) or b"")
        if not isinstance(public, RSAPublicKey):
            return False
        public.verify(signature, message, PKCS1v15(), digest)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return False
    return True


def msgraph(secrets: tuple[bytes, ...], request: Request, now: float) -> Verdict:  # noqa: ARG001 - no time is signed
    """Compare the client state of every item; there is no signature."""
    items = at_path(document_of(request.body), "value")
    if not isinstance(items, list) or not items:
        return MISSING
    states = [at_path(item, "clientState") for item in items]
    if not all(isinstance(each, str) and each for each in states):
        return MISSING
    given = [str(each).encode("utf-8", "replace") for each in states]
    for index, secret in enumerate(secrets):
        if secret and all(hmac.compare_digest(secret, each) for each in given):
            return Verdict(SignatureState.VALID, index)
    return INVALID


def monday(secrets: tuple[bytes, ...], request: Request, now: float) -> Verdict:
    """Verify the JWT (HS256) that comes as Authorization; it says nothing about the body."""
    values = values_of(request.headers, "authorization")
    if not any(values):
        return MISSING
    parts = values[0].removeprefix(b"Bearer ").split(b".")
    if len(values) != 1 or len(parts) != 3:
        return INVALID
    head, claims = (document_of(_url_decoded(part) or b"") for part in parts[:2])
    signature = _url_decoded(parts[2])
    if not isinstance(head, dict) or head.get("alg") != "HS256" or not isinstance(claims, dict):
        return INVALID
    expiry = claims.get("exp")
    if isinstance(expiry, (int, float)) and expiry < now - _SKEW:
        return INVALID
    message = parts[0] + b"." + parts[1]
    for index, secret in enumerate(secrets):
        if secret and hmac.compare_digest(hmac.digest(secret, message, "sha256"), signature or b""):
            return Verdict(SignatureState.VALID, index)
    return INVALID


def _url_decoded(text: bytes) -> bytes | None:
    try:
        read = base64.b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    return read if base64.urlsafe_b64encode(read).rstrip(b"=") == text else None


def twilio(secrets: tuple[bytes, ...], request: Request, now: float) -> Verdict:  # noqa: ARG001 - no time is signed
    """Verify over the address and the sorted form, or over an address that has the body's hash.

    Which port a proxy leaves in the address is not known, so it counts with and without.
    """
    values = values_of(request.headers, "x-twilio-signature")
    if not any(values):
        return MISSING
    given = signature_of(values[0], Encoding.BASE64) if len(values) == 1 else None
    form = _twilio_form(request)
    if given is None or form is None:
        return INVALID
    for index, secret in enumerate(secrets):
        if not secret:
            continue
        for url in _with_and_without_port(request.url):
            message = url.encode("utf-8", "replace") + form
            if hmac.compare_digest(hmac.digest(secret, message, "sha1"), given):
                # A form may be written in many ways, all of which are signed as the same.
                return Verdict(SignatureState.VALID, index, message)
    return INVALID


def _twilio_form(request: Request) -> bytes | None:
    query = query_of(request.url)
    if "bodySHA256" in query:
        digest = hashlib.sha256(request.body).hexdigest()
        same = hmac.compare_digest(digest.encode(), query["bodySHA256"].encode("utf-8", "replace"))
        return b"" if same else None
    if not request.body:
        return b""
    if request.content_type.partition(";")[0].strip().lower() != FORM:
        # Nothing would vouch for such a body.
        return None
    fields = form_of(request.body)
    return None if fields is None else b"".join(map(b"".join, sorted(set(fields))))


def _with_and_without_port(url: str) -> Iterable[str]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return (url,)
    host = parts.hostname or ""
    usual = {"https": 443, "http": 80}.get(parts.scheme, 443)
    bare = parts._replace(netloc=host).geturl()
    return (url, bare, parts._replace(netloc=f"{host}:{port or usual}").geturl())


def telegram_event(headers: Any, document: Any) -> str:  # noqa: ARG001 - the body tells
    """Name an update by its first member beside its number."""
    names = document if isinstance(document, dict) else {}
    return next((str(name) for name in names if name != "update_id"), "")


def twilio_event(headers: Any, document: Any) -> str:  # noqa: ARG001 - the body tells
    """Name a message or a call by where it stands."""
    status = _twilio_status(document)
    if at_path(document, "MessageSid"):
        return "message.inbound" if status in {"", "received"} else f"message.{status}"
    return f"call.{status}" if at_path(document, "CallSid") and status else ""


def twilio_dedupe(headers: Any, document: Any) -> str:  # noqa: ARG001 - the body tells
    """Give the message's or the call's id; each later status of it is a delivery of its own."""
    found = at_path(document, "MessageSid") or at_path(document, "CallSid") or ""
    status = _twilio_status(document)
    return (
        f"{found}:{status}" if found and status not in {"", "received", "ringing"} else str(found)
    )


def _twilio_status(document: Any) -> str:
    for name in ("SmsStatus", "MessageStatus", "CallStatus"):
        if found := at_path(document, name):
            return str(found)
    return ""


def msgraph_dedupe(headers: Any, document: Any) -> str:  # noqa: ARG001 - the body tells
    """Give the id of the only item; several together have none."""
    items = at_path(document, "value")
    found = at_path(document, "value.0.id") if isinstance(items, list) and len(items) == 1 else ""
    return found if isinstance(found, str) else ""


def cloudevents_dedupe(headers: Any, document: Any) -> str:
    """Give source and id together: an id is unique for its source only."""
    from_headers = [value for name in ("ce-source", "ce-id") for value in values_of(headers, name)]
    if len(from_headers) == 2:
        return b" ".join(from_headers).decode("latin-1")
    pair = [at_path(document, "source"), at_path(document, "id")]
    return (
        " ".join(str(each) for each in pair) if all(isinstance(each, str) for each in pair) else ""
    )


def zendesk_dedupe(headers: Any, document: Any) -> str:  # noqa: ARG001 - the body tells
    """Give an event's id. Other bodies are people's own, where an id may be a ticket's."""
    kind, found = at_path(document, "type"), at_path(document, "id")
    is_event = isinstance(kind, str) and kind.startswith("zen:event-type:")
    return found if is_event and isinstance(found, str) else ""


def woocommerce_event(headers: Any, document: Any) -> str:  # noqa: ARG001 - the body tells
    """Recognise the form that is posted when a hook is saved."""
    return "ping" if isinstance(document, dict) and set(document) == {"webhook_id"} else ""


def discord_event(headers: Any, document: Any) -> str:  # noqa: ARG001 - the body tells
    """Name a message without an event: a ping, or an interaction."""
    kind = document.get("type") if isinstance(document, dict) else None
    if kind == 0 or (kind == 1 and "event" not in document):
        return "PING"
    return f"INTERACTION_{kind}" if isinstance(kind, int) else ""


def dropbox_event(headers: Any, document: Any) -> str:  # noqa: ARG001 - the body tells
    """Name what changed: files of accounts, or whatever else a list is sent of."""
    names = document if isinstance(document, dict) else {}
    return next((str(name) for name in names), "")


def x_event(headers: Any, document: Any) -> str:  # noqa: ARG001 - the body tells
    """Name an activity by the list that holds it."""
    names = document if isinstance(document, dict) else {}
    return next((str(name) for name in names if str(name).endswith("_events")), "")
