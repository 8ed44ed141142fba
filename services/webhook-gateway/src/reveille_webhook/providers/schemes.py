"""The schemes that several rows of the provider table share."""

from __future__ import annotations

from reveille_webhook.domain.scheme import (
    Algorithm,
    Encoding,
    Header,
    Item,
    Key,
    Kind,
    Scheme,
    Stamp,
    Unit,
)


def body_hmac(
    header: str,
    prefix: str = "",
    *,
    algorithm: Algorithm = Algorithm.HMAC_SHA256,
    encoding: Encoding = Encoding.HEX,
    separator: str = "",
    key: Key = Key.TEXT,
) -> Scheme:
    """An HMAC of the raw body."""
    return Scheme((Header(header),), (Kind(algorithm, prefix, key),), encoding, separator=separator)


def stamped_hmac(
    header: str,
    stamp_header: str,
    message: str,
    prefix: str = "",
    *,
    encoding: Encoding = Encoding.HEX,
    unit: Unit = Unit.SECONDS,
) -> Scheme:
    """An HMAC over a time from a header and the body."""
    return Scheme(
        (Header(header),),
        (Kind(Algorithm.HMAC_SHA256, prefix),),
        encoding,
        message,
        stamp=Stamp(Header(stamp_header), unit),
    )


def listed_hmac(
    header: str, stamp_prefix: str, prefix: str, *, separator: str = ",", past: int = 300
) -> Scheme:
    """A list of a time and HMACs over it and the body."""
    return Scheme(
        (Header(header),),
        (Kind(Algorithm.HMAC_SHA256, prefix),),
        message="{timestamp}.{body}",
        separator=separator,
        stamp=Stamp(Item(stamp_prefix), past=past),
    )


def standard_webhooks(prefix: str = "webhook") -> Scheme:
    """Standard Webhooks: symmetric and asymmetric signatures in one list."""
    return Scheme(
        (Header(f"{prefix}-signature"),),
        (
            Kind(Algorithm.HMAC_SHA256, "v1,", Key.WHSEC),
            Kind(Algorithm.ED25519, "v1a,", Key.WHPK),
        ),
        Encoding.BASE64,
        "{id}.{timestamp}.{body}",
        separator=" ",
        stamp=Stamp(Header(f"{prefix}-timestamp")),
        id=Header(f"{prefix}-id"),
    )


def token(header: str) -> Scheme:
    """A credential that is the same in every request."""
    return Scheme((Header(header),), (Kind(Algorithm.EQUALS),), Encoding.PLAIN, "")


HUB_SHA256 = body_hmac("x-hub-signature-256", "sha256=")
# Atlassian's, in the header that is SHA-1 elsewhere.
HUB_OLD_HEADER_SHA256 = body_hmac("x-hub-signature", "sha256=")
HUB_SHA1 = body_hmac("x-hub-signature", "sha1=", algorithm=Algorithm.HMAC_SHA1)
