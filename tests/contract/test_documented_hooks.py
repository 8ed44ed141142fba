"""Senders and options of hooks: the pages say of each what its row and its field say."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from reveille.webhook.v1 import endpoint_service_pb2
from reveille_webhook.config import Settings
from reveille_webhook.domain import endpoint, generic
from reveille_webhook.domain.exclusion import LONGEST_TEXT
from reveille_webhook.domain.provider import BodyHash, Computed, Provider, Source
from reveille_webhook.domain.scheme import Header
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
    cells = (f"`{provider.name}`", credential + needed, event, places(provider.dedupe) or "none")
    return "| " + " | ".join(cells) + " |"


def options() -> dict[str, str]:
    """The rows of the page's table of options, by name."""
    table = WEBHOOKS[WEBHOOKS.index("| option |") :].split("\n\n")[0].splitlines()[2:]
    rows = (line.strip("| ").split(" | ", maxsplit=1) for line in table)
    return {name.strip("`"): text for name, text in rows}


def test_every_sender_is_on_the_page_as_its_row_is() -> None:
    written = [line for line in SENDERS.splitlines() if line.startswith("| `")]

    assert written == [row(PROVIDERS[name]) for name in sorted(PROVIDERS)]


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
