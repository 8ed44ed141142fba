"""The provider table: one row a sender. A new sender is a row here and its vectors in the tests."""

from __future__ import annotations

from collections.abc import Mapping

from reveille_webhook.domain.scheme import (
    Algorithm,
    Encoding,
    Header,
    Member,
    Provider,
    SignatureScheme,
    SignedMessage,
)

_HUB_SIGNATURE = SignatureScheme(
    header="x-hub-signature-256",
    prefix="sha256=",
    algorithm=Algorithm.HMAC_SHA256,
    encoding=Encoding.HEX,
    message=SignedMessage.BODY,
)

_ROWS = (
    Provider(
        name="github",
        signature=_HUB_SIGNATURE,
        dedupe=(Header("x-github-delivery"), Header("idempotency-key")),
        event=(Header("x-github-event"),),
        action=(Member("action"),),
        also_actions=(Member("state"), Member("conclusion"), Member("status")),
        keep=frozenset(
            {
                "x-github-event",
                "x-github-delivery",
                "x-github-hook-id",
                "x-github-hook-installation-target-id",
                "x-github-hook-installation-target-type",
            }
        ),
    ),
    # Any sender: the token in the path is the credential, and a secret, once added, is checked the
    # way most senders sign.
    Provider(
        name="generic",
        signature=_HUB_SIGNATURE,
        dedupe=(Header("idempotency-key"), Header("x-github-delivery")),
        event=(Header("x-event-type"), Member("event"), Member("type")),
        action=(Member("action"),),
        also_actions=(Member("state"), Member("conclusion"), Member("status")),
        keep=frozenset({"x-event-type", "x-github-delivery"}),
    ),
)

PROVIDERS: Mapping[str, Provider] = {row.name: row for row in _ROWS}
