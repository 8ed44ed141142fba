"""A sender for every row of the table: it signs a request the way the row says.

Written from the rows' data, apart from the verifier: what it makes, the verifier has to take, and
every byte of what it signed counts.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding as KeyEncoding
from cryptography.hazmat.primitives.serialization import PublicFormat

from reveille_webhook.domain.provider import Provider
from reveille_webhook.domain.request import Request
from reveille_webhook.domain.scheme import (
    Algorithm,
    Encoding,
    Header,
    Item,
    Key,
    Kind,
    Path,
    Scheme,
    Stamp,
    Unit,
)

NOW = 1_790_000_000
URL = "https://hooks.example.com/hooks/awt_token?a=1"
KEY = b"thirty-two bytes of a signing key"
_ED25519 = Ed25519PrivateKey.from_private_bytes(b"\x07" * 32)
_P256 = ec.derive_private_key(7, ec.SECP256R1())
_RSA = rsa.generate_private_key(65537, 2048)
_DIGESTS = {
    Algorithm.HMAC_SHA1: "sha1",
    Algorithm.HMAC_SHA256: "sha256",
    Algorithm.HMAC_SHA512: "sha512",
}


@dataclass(frozen=True)
class Signed:
    """A request, the secret its hook needs, and where its credential stands.

    `where` is the header's name, or empty where the credential is inside the body.
    """

    request: Request
    secret: bytes
    where: str
    covers_body: bool = True
    scheme: Scheme | None = None


def samples(provider: Provider, url: str = URL) -> list[Signed]:
    """Sign a small body by every scheme of a row; an id that is in the body is there."""
    if provider.name == "twilio":
        return [_twilio(url)]
    special = _SPECIAL.get(provider.name)
    if special is not None:
        return [special()]
    paths = [source.path for source in provider.dedupe if isinstance(source, Path)]
    return [
        _by_scheme(scheme, kind, paths, url) for scheme in provider.schemes for kind in scheme.kinds
    ]


def _secret(kind: Kind) -> tuple[bytes, bytes]:
    """Give what the hook holds and the key that comes of it."""
    match kind.key:
        case Key.WHPK:
            public = _ED25519.public_key().public_bytes(KeyEncoding.Raw, PublicFormat.Raw)
            return b"whpk_" + base64.b64encode(public), b""
        case Key.SPKI:
            public = _P256.public_key().public_bytes(
                KeyEncoding.DER, PublicFormat.SubjectPublicKeyInfo
            )
            return base64.b64encode(public), b""
        case Key.WHSEC:
            return b"whsec_" + base64.b64encode(KEY), KEY
        case Key.BASE64:
            return base64.b64encode(KEY), KEY
        case Key.HEX if kind.algorithm is Algorithm.ED25519:
            public = _ED25519.public_key().public_bytes(KeyEncoding.Raw, PublicFormat.Raw)
            return public.hex().encode(), b""
        case Key.HEX:
            return KEY.hex().encode(), KEY
        case Key.TEXT | Key.META:
            return KEY, KEY


def _stamp(stamp: Stamp) -> bytes:
    match stamp.unit:
        case Unit.SECONDS:
            return str(NOW).encode()
        case Unit.MILLISECONDS:
            return str(NOW * 1000).encode()
        case Unit.ISO:
            return datetime.fromtimestamp(NOW, UTC).isoformat().replace("+00:00", "Z").encode()


def _by_scheme(scheme: Scheme, kind: Kind, ids: list[str], url: str) -> Signed:
    secret, key = _secret(kind)
    document: dict[str, object] = {"type": "thing.made", "id": "evt_1"}
    for path in ids:
        _put(document, path, "evt_1")
    headers: list[tuple[bytes, bytes]] = [(b"content-type", b"application/json")]
    fields = {"method": b"POST", "url": url.encode(), "secret": key, "id": b"msg_1"}
    if scheme.stamp is not None:
        fields["timestamp"] = _stamp(scheme.stamp)
        if isinstance(scheme.stamp.source, Header):
            headers.append((scheme.stamp.source.name.encode(), fields["timestamp"]))
        if isinstance(scheme.stamp.source, Path):
            _put(document, scheme.stamp.source.path, int(fields["timestamp"]))
    if isinstance(scheme.id, Header):
        headers.append((scheme.id.name.encode(), fields["id"]))
    if isinstance(scheme.id, Path):
        _put(document, scheme.id.path, fields["id"].decode())
    if scheme.when is not None:
        headers.append((scheme.when[0].encode(), scheme.when[1].encode()))
    fields["body"] = json.dumps(document, separators=(",", ":")).encode()
    message = scheme.message
    text = b"".join(_filled(message, fields))
    written = kind.prefix.encode() + _written(_made(kind, key, text, secret), scheme.encoding)
    if scheme.stamp is not None and isinstance(scheme.stamp.source, Item):
        stamp = scheme.stamp.source.prefix.encode() + fields["timestamp"]
        written = scheme.separator.encode().join([stamp, written])
    source = scheme.sources[0]
    if isinstance(source, Header):
        headers.append((source.name.encode(), written))
        where = source.name
    else:
        _put(document, source.path, written.decode())
        fields["body"] = json.dumps(document, separators=(",", ":")).encode()
        where = ""
    request = Request(headers, fields["body"], "POST", url)
    return Signed(request, secret, where, covers_body="{body}" in message, scheme=scheme)


def _filled(template: str, fields: dict[str, bytes]) -> list[bytes]:
    found = []
    while template:
        before, opened, rest = template.partition("{")
        name, _, template = rest.partition("}")
        found += [before.encode(), fields[name] if opened else b""]
    return found


def _made(kind: Kind, key: bytes, text: bytes, secret: bytes) -> bytes:
    match kind.algorithm:
        case Algorithm.EQUALS:
            return secret
        case Algorithm.SHA256:
            return hashlib.sha256(text).digest()
        case Algorithm.ED25519:
            return _ED25519.sign(text)
        case Algorithm.ECDSA_P256:
            return _P256.sign(text, ec.ECDSA(SHA256()))
        case _:
            return hmac.digest(key, text, _DIGESTS[kind.algorithm])


def _written(signature: bytes, encoding: Encoding) -> bytes:
    if encoding is Encoding.HEX:
        return signature.hex().encode()
    return base64.b64encode(signature) if encoding is Encoding.BASE64 else signature


def _put(document: dict[str, object], path: str, value: object) -> None:
    *names, last = path.split(".")
    for name in names:
        document = document.setdefault(name, {})  # type: ignore[assignment]  # all are objects
    document[last] = value


def _body(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


_JSON = [(b"content-type", b"application/json")]


def _adyen() -> Signed:
    item = {"pspReference": "P1", "eventCode": "AUTHORISATION", "success": "true"}
    text = ":".join(["P1", "", "", "", "", "", "AUTHORISATION", "true"]).encode()
    signature = base64.b64encode(hmac.digest(KEY, text, "sha256")).decode()
    item_signed = {**item, "additionalData": {"hmacSignature": signature}}
    body = _body({"notificationItems": [{"NotificationRequestItem": item_signed}]})
    return Signed(Request(_JSON, body), KEY.hex().encode(), "", covers_body=False)


def _sns() -> Signed:
    document = {
        "Type": "Notification",
        "MessageId": "m-1",
        "TopicArn": "arn:aws:sns:eu-west-1:1:t",
        "Message": "hello",
        "Timestamp": "2026-09-21T14:13:20.000Z",
        "SignatureVersion": "2",
    }
    names = ("Message", "MessageId", "Timestamp", "TopicArn", "Type")
    text = "".join(f"{name}\n{document[name]}\n" for name in names).encode()
    signature = base64.b64encode(_RSA.sign(text, PKCS1v15(), SHA256())).decode()
    public = _RSA.public_key().public_bytes(KeyEncoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return Signed(
        Request(_JSON, _body({**document, "Signature": signature})), public, "", covers_body=False
    )


def _graph() -> Signed:
    body = _body({"value": [{"id": "i", "clientState": KEY.decode(), "changeType": "created"}]})
    return Signed(Request(_JSON, body), KEY, "", covers_body=False)


def _monday() -> Signed:
    parts = [{"alg": "HS256", "typ": "JWT"}, {"accountId": 1, "exp": NOW + 60}]
    text = b".".join(base64.urlsafe_b64encode(_body(part)).rstrip(b"=") for part in parts)
    signature = base64.urlsafe_b64encode(hmac.digest(KEY, text, "sha256")).rstrip(b"=")
    headers = [*_JSON, (b"authorization", text + b"." + signature)]
    return Signed(
        Request(headers, b'{"event":{"type":"x"}}'), KEY, "authorization", covers_body=False
    )


def _twilio(url: str) -> Signed:
    body = b"MessageSid=SM1&From=12&Body=hello"
    text = url.encode() + b"BodyhelloFrom12MessageSidSM1"
    signature = base64.b64encode(hmac.digest(KEY, text, "sha1"))
    headers = [
        (b"content-type", b"application/x-www-form-urlencoded"),
        (b"x-twilio-signature", signature),
    ]
    return Signed(Request(headers, body, "POST", url), KEY, "x-twilio-signature")


_SPECIAL = {
    "adyen": _adyen,
    "aws_sns": _sns,
    "msgraph": _graph,
    "monday": _monday,
}
