"""What `reveille hooks` makes of each row of the provider table, held against the gateway."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from reveille.webhook.v1 import endpoint_service_pb2 as pb
from reveille_cli.commands import hooks
from reveille_cli.failures import Failure
from reveille_cli.signing import named
from reveille_runtime.validation import Violations
from reveille_webhook.domain import facts
from reveille_webhook.domain.generic import told
from reveille_webhook.domain.provider import BodyHash, Source
from reveille_webhook.domain.request import Request
from reveille_webhook.domain.scheme import Header
from reveille_webhook.domain.scheme import Path as BodyPath
from reveille_webhook.domain.signature import verify
from reveille_webhook.domain.states import SignatureState
from reveille_webhook.providers.table import PROVIDERS
from reveille_webhook.rpc.convert import read_generic, write_provider

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text("utf-8")
ROWS = {name: write_provider(provider) for name, provider in sorted(PROVIDERS.items())}
NOW, AT = 1_790_000_000, "2026-09-21T14:13:20Z"
URL = "https://hooks.example.com/hooks/awt_x"
BODY = json.dumps({"webhookTimestamp": NOW * 1000}).encode()
KEY = base64.b64encode(b"thirty-two bytes of a signing key")


def on_the_page(words: str) -> set[str]:
    """Name the senders of the item that begins with some words."""
    item = re.search(rf"^- {words}.*?(?=^- |^$)", PAGE, re.MULTILINE | re.DOTALL)
    assert item is not None, words
    return set(re.findall(r"`(\w+)`", item[0])) & set(PROVIDERS)


CANNOT = on_the_page("Neither signs for")


def secret_of(row: Any) -> bytes:
    return b"whsec_" + KEY if row.scheme.key == "whsec" else KEY


def signed(row: Any, url: str = URL) -> dict[str, str]:
    return hooks._signed(row, secret_of(row), BODY, url, AT, "m-1")


def request_of(headers: dict[str, str]) -> Request:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    return Request(pairs, BODY, "POST", URL)


@pytest.mark.parametrize("name", sorted(set(ROWS) - CANNOT))
def test_what_is_signed_is_taken_by_the_gateway(name: str) -> None:
    row = ROWS[name]

    verdict = verify(PROVIDERS[name], [secret_of(row)], request_of(signed(row)), NOW)

    assert verdict.state is SignatureState.VALID


@pytest.mark.parametrize("name", sorted(CANNOT))
def test_who_cannot_be_signed_for_is_refused(name: str) -> None:
    with pytest.raises(Failure) as failure:
        signed(ROWS[name])

    assert [each.field for each in failure.value.violations] == ["provider"]


def test_who_signs_the_address_is_on_the_page() -> None:
    wanting = {}
    for name in set(ROWS) - CANNOT:
        try:
            signed(ROWS[name], url="")
        except Failure as failure:
            wanting[name] = [each.field for each in failure.violations]

    assert wanting == {name: ["url"] for name in on_the_page("`--url`")}


def place(source: Source) -> str:
    if isinstance(source, Header):
        return source.name
    if isinstance(source, BodyPath):
        return f"body.{source.path}"
    return "the hash of the body" if isinstance(source, BodyHash) else "several parts"


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("option", ["event", "id"])
def test_a_name_goes_into_the_header_the_gateway_reads_or_is_refused(
    name: str, option: str
) -> None:
    provider = PROVIDERS[name]
    sources = provider.event if option == "event" else provider.dedupe
    given = {"event": None, "event_id": None, ("event" if option == "event" else "event_id"): "n-1"}

    if sources and isinstance(sources[0], Header):
        found = facts.name(provider, request_of(named(ROWS[name], **given)), {})
        assert (found.event if option == "event" else found.dedupe_key) == "n-1"
        return
    with pytest.raises(Failure) as failure:
        named(ROWS[name], **given)

    (violation,) = failure.value.violations
    assert violation.field == option
    for each in map(place, sources):
        assert each in violation.description
    assert sources or "gives none" in violation.description


@pytest.mark.parametrize(
    ("name", "generic"),
    [
        ("generic_hmac", pb.GenericScheme()),
        ("generic_hmac", pb.GenericScheme(event="built", algorithm="sha256", encoding="hex")),
        ("generic_hmac", pb.GenericScheme(header="X-Acme-Signature")),
        ("generic_hmac", pb.GenericScheme(prefix="v1=", encoding="base64")),
        ("generic_hmac", pb.GenericScheme(algorithm="sha512", separator=" ")),
        ("generic_hmac", pb.GenericScheme(algorithm="sha1")),
        ("generic_hmac", pb.GenericScheme(separator=",")),
        ("generic_token", pb.GenericScheme(header="X-Acme-Token")),
        ("generic_token", pb.GenericScheme(event="built")),
    ],
)
def test_the_options_of_a_hook_are_those_the_gateway_goes_by(
    name: str, generic: pb.GenericScheme
) -> None:
    violations = Violations()
    wanted = read_generic(violations, "generic", name, generic)
    violations.check()
    provider = told(PROVIDERS[name], wanted)
    row = write_provider(provider)

    verdict = verify(provider, [secret_of(row)], request_of(signed(row)), NOW)

    assert verdict.state is SignatureState.VALID
