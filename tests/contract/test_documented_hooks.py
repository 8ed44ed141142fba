"""Senders and options of hooks: the pages say of each what its row and its field say."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from reveille.webhook.v1 import endpoint_service_pb2
from reveille_webhook.config import Settings
from reveille_webhook.domain import document, endpoint, generic, parsing, room, signature
from reveille_webhook.domain.exclusion import LONGEST_TEXT
from reveille_webhook.domain.provider import BodyHash, Computed, Provider, Source
from reveille_webhook.domain.scheme import Algorithm, Header, Key, Scheme, fields_of
from reveille_webhook.http.protocol import Limits
from reveille_webhook.providers.special import SNS_CONFIRMS_FOR
from reveille_webhook.providers.table import PROVIDERS

DOCS = Path(__file__).resolve().parents[2] / "docs"
SENDERS = (DOCS / "senders.md").read_text("utf-8")
WEBHOOKS = (DOCS / "webhooks.md").read_text("utf-8")
_POLICIES = ("flag", "refuse")


def place(source: Source) -> str:
    """Say where a value is, as the page writes it."""
    if isinstance(source, BodyHash):
        return "the hash of the body"
    if isinstance(source, Computed):
        return "made of its parts"
    return f"`{source.name}`" if isinstance(source, Header) else f"`body.{source.path}`"


def places(sources: Iterable[Source]) -> str:
    return ", else ".join(dict.fromkeys(map(place, sources)))


def row(provider: Provider) -> str:
    """Say what a row of the table says."""
    credential = places(each for scheme in provider.schemes for each in scheme.sources)
    needed = "; demanded" if provider.demands_secret else ""
    event = "; ".join(filter(None, (places(provider.event), places(provider.action))))
    names = (event, places(provider.dedupe) or "none", places(provider.sender))
    return "| " + " | ".join((f"`{provider.name}`", credential + needed, *names)) + " |"


def options() -> dict[str, str]:
    """The rows of the page's table of options, by name."""
    table = WEBHOOKS[WEBHOOKS.index("| option |") :].split("\n\n")[0].splitlines()[2:]
    rows = (line.strip("| ").split(" | ", maxsplit=1) for line in table)
    return {name.strip("`"): text for name, text in rows}


def test_every_sender_is_on_the_page_as_its_row_is() -> None:
    written = [line for line in SENDERS.splitlines() if line.startswith("| `")]

    assert written == [row(PROVIDERS[name]) for name in sorted(PROVIDERS)]


def needs_something_first(provider: Provider) -> bool:
    """Whether its secret is no word that both know, or has to be there at another moment."""
    kinds = [kind for scheme in provider.schemes for kind in scheme.kinds]
    public = any(
        kind.algorithm is Algorithm.ECDSA_P256
        or (kind.algorithm is Algorithm.ED25519 and kind.key is Key.HEX)
        for kind in kinds
    )
    bearer = provider.special is None and Header("authorization") in provider.schemes[0].sources
    signs_url = any("url" in fields_of(scheme) for scheme in provider.schemes)
    kept = any(each.kept for each in provider.handshakes)
    token = bearer and kinds[0].algorithm is Algorithm.EQUALS
    return provider.demands_secret or public or token or signs_url or kept


def test_who_needs_something_before_the_first_request_is_on_the_page() -> None:
    section = SENDERS.split("## Before its first request\n")[1]
    heads = re.findall(r"^- ([^:]*):", section, re.MULTILINE)
    named = [name for head in heads for name in re.findall(r"`(\w+)`", head)]

    assert set(named) <= set(PROVIDERS)
    assert sorted(heads) == heads
    assert {name for name, each in PROVIDERS.items() if needs_something_first(each)} <= set(named)


def test_what_the_options_leave_out_is_on_the_page() -> None:
    hmac, token = PROVIDERS["generic_hmac"], PROVIDERS["generic_token"]
    none = hmac.schemes[0]
    some = generic.told(hmac, generic.Generic(separator=",")).schemes[0]
    separator = generic.told(hmac, generic.Generic(prefix="x")).schemes[0].separator

    assert scheme_row("none of them is named", none, none.separator) in WEBHOOKS
    assert scheme_row("any of them is named", some, separator) in WEBHOOKS
    assert f"`generic_token` looks into {places(token.schemes[0].sources)} " in WEBHOOKS


def scheme_row(when: str, scheme: Scheme, separator: str) -> str:
    (kind,) = scheme.kinds
    algorithm = next(name for name, each in generic.ALGORITHMS.items() if each is kind.algorithm)
    cells = [f"`{algorithm}`", f"`{scheme.encoding.value}`"]
    cells += [f"`{each}`" if each else "none" for each in (kind.prefix, separator)]
    return "| " + " | ".join((when, places(scheme.sources), *cells)) + " |"


def test_the_limits_are_on_the_page() -> None:
    section = WEBHOOKS.split("## Limits\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    settings = {name: field.default for name, field in Settings.model_fields.items()}
    limits = Limits()

    def of(text: str) -> str:
        (line,) = (line for line in lines if text in line)
        return line

    for name in (
        "connections_per_address",
        "http_connections",
        "ip_ceiling",
        "credential_debt",
        "http_head_timeout",
        "http_request_timeout",
        "http_idle_timeout",
    ):
        usual = f"{settings[name]:,g}" + (" s" if name.endswith("timeout") else "")
        assert f" | {usual} | " in of(f"`REVEILLE_{name.upper()}`")
    assert f" {endpoint.DEFAULT_BODY_BYTES >> 10} KiB" in of("--max-body-bytes")
    assert f" {endpoint.MOST_BODY_BYTES >> 20} MiB" in of("--max-body-bytes")
    assert f" | {limits.head_count} fields, {limits.head_bytes >> 10} KiB | " in of("headers, ")
    assert f" | {limits.pipelined} | " in of("wait on one connection")
    assert f" | {signature.MOST_SIGNATURES} | " in of("signatures in one request")
    assert f" | {signature.MOST_ASYMMETRIC} | " in of("a public key")
    assert f" | {settings['body_room'] >> 20} MiB, half" in of("`REVEILLE_BODY_ROOM`")
    assert f"bodies over {room.SMALL_BODY >> 10} KiB" in of("`REVEILLE_BODY_ROOM`")
    values, fields = document.MOST_VALUES, document.MOST_FIELDS
    form = f"{fields:,} fields of a form, and {document.MOST_STRAYS:,} percent signs in it that"
    assert f" | {values:,}; {form} " in of("before it is verified")
    assert f" | {parsing.MOST_MEMBERS:,} | " in of("are read from it")
    assert f"of `aws_sns` {SNS_CONFIRMS_FOR // 86_400} days back | " in of("how far a signed time")


def test_how_far_a_signed_time_may_be_off_is_on_the_page() -> None:
    (line,) = (line for line in WEBHOOKS.splitlines() if line.startswith("| how far a signed time"))
    stamps = {
        (provider.name, scheme.stamp.past, scheme.stamp.future)
        for provider in PROVIDERS.values()
        for scheme in provider.schemes
        if scheme.stamp is not None
    }
    others = {(past, future) for name, past, future in stamps if name != "linear"}

    assert others == {(300, 300)}
    assert ("linear", 60, 60) in stamps
    assert "300 s to both sides; of `linear` 60 s" in line


def test_every_option_is_on_the_page() -> None:
    fields = endpoint_service_pb2.EndpointOptions.DESCRIPTOR.fields
    scheme = endpoint_service_pb2.GenericScheme.DESCRIPTOR.fields
    names = [field.name for field in fields if field.name != "generic"]

    assert list(options()) == [f"generic.{field.name}" for field in scheme] + names


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("generic.algorithm", generic.ALGORITHMS),
        ("generic.encoding", generic.ENCODINGS),
        ("content_policy", _POLICIES),
    ],
)
def test_the_values_of_an_option_are_on_the_page(name: str, values: Iterable[str]) -> None:
    assert set(values) <= set(re.findall(r"`(\w+)`", options()[name]))


def test_the_limits_of_options_are_on_the_page() -> None:
    usual = {name: field.default for name, field in Settings.model_fields.items()}
    for name in ("rate_per_minute", "hourly_budget"):
        assert f"{endpoint.MOST_PER_MINUTE:,}" in options()[name]
        assert f" {usual[name]} " in options()[name]
    assert f"{endpoint.LONGEST_PATH} characters" in options()["lane_path"]
    for name, most in (
        ("excluded_senders", endpoint.MOST_SENDERS),
        ("own_markers", endpoint.MOST_MARKERS),
    ):
        assert f"at most {most} of {LONGEST_TEXT} characters" in options()[name]
