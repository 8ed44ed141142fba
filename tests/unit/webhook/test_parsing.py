"""Bodies: read where they can be, never a reason to fail, and names that a row can hold."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reveille_webhook.domain import facts
from reveille_webhook.domain.parsing import FORM, parse
from reveille_webhook.providers.table import PROVIDERS

JSON = "application/json"
GITHUB = PROVIDERS["github"]


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'{"action":"opened"}', JSON),
        (b'{"action":"opened"}', "application/json; charset=utf-8"),
        (b'{"action":"opened"}', "application/vnd.github+json"),
        (b'{"action":"opened"}', "Application/JSON"),
        (b'{"action":"opened"}', ""),
        (b'\xef\xbb\xbf{"action":"opened"}', JSON),
        ('{"action":"opened"}'.encode("utf-16"), JSON),
        ('{"action":"opened"}'.encode("utf-16-le"), JSON),
        (b'{"action":"closed","action":"opened"}', JSON),
        (b'{"action":"opened","n":1e400}', JSON),
        (b'{"action":"opened","n":' + b"9" * 20_000 + b"}", JSON),
        (b"payload=%7B%22action%22%3A%22opened%22%7D", FORM),
        (b"payload=%7b%22action%22%3a%22opened%22%7d&x=1", FORM + "; charset=utf-8"),
        (b"action=opened&action=closed", FORM),
    ],
)
def test_members_are_found(body: bytes, content_type: str) -> None:
    parsed = parse(body, content_type)

    assert parsed.problem == ""
    assert parsed.members["action"] == "opened"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"[1, 2]", JSON),
        (b"[" * 100_000 + b"]" * 100_000, JSON),
        (("[" * 100_000 + "]" * 100_000).encode("utf-16"), JSON),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, JSON),
        (b"payload=" + b"[" * 100_000 + b"]" * 100_000, FORM),
        (b"<event/>", "application/xml"),
        (b"\x00\xff", "application/octet-stream"),
        (b"not json", ""),
        (b"", ""),
        (b"", "text/plain"),
        (b"", FORM),
    ],
)
def test_what_has_no_members_is_not_broken(body: bytes, content_type: str) -> None:
    parsed = parse(body, content_type)

    assert (parsed.members, parsed.problem) == ({}, "")


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"", JSON),
        (b" \r\n", JSON),
        (b'{"action":', JSON),
        (b'{"a":"\xe9"}', JSON),
        (b"[" * 100_000, JSON),
        (b"[" * 100_000 + b"]" * 99_999 + b"}", JSON),
        (b'{"a":' * 5_000 + b"}" * 5_000, JSON),
        (b"payload=" + b"[" * 100_000, FORM),
        (b'"a scalar"', JSON),
        (b"42", JSON),
        (b"payload=%7B", FORM),
        (b"payload=", FORM),
        (b"&".join(b"a%d=1" % number for number in range(1_001)), FORM),
    ],
)
def test_what_is_not_what_it_says_is_broken(body: bytes, content_type: str) -> None:
    parsed = parse(body, content_type)

    assert parsed.members == {}
    assert parsed.problem


@given(
    body=st.binary(max_size=200),
    content_type=st.sampled_from([JSON, FORM, "", "text/plain", "application/x+json;;"]),
)
def test_it_never_raises(body: bytes, content_type: str) -> None:
    parse(body, content_type)


def test_names_are_fit_for_a_row() -> None:
    members = json.loads(r'{"action":"a\u0000b\ud800c","state":5,"status":"done","conclusion":""}')
    headers = [(b"x-github-event", b" is\xe9sues "), (b"x-github-delivery", b" ")]

    naming = facts.name(GITHUB, headers, members)

    assert naming.event == "is\u00e9sues"
    assert naming.action == "a\ufffdb?c"
    assert naming.actions == ("a\ufffdb?c", "done")
    assert naming.dedupe_key is None
    naming.action.encode()


def test_sources_are_tried_in_order() -> None:
    both = [(b"idempotency-key", b"key"), (b"x-github-delivery", b"guid")]
    generic = PROVIDERS["generic"]

    assert facts.name(GITHUB, both, {}).dedupe_key == "guid"
    assert facts.name(GITHUB, both[:1], {}).dedupe_key == "key"
    assert facts.name(generic, both, {}).dedupe_key == "key"
    assert facts.name(generic, both[1:], {}).dedupe_key == "guid"
    assert facts.name(generic, [(b"x-event-type", b"e")], {"event": "f"}).event == "e"
    assert facts.name(generic, [], {"event": "f", "type": "t"}).event == "f"
    assert facts.name(generic, [], {"event": " ", "type": "t"}).event == "t"
    assert facts.name(generic, [], {"event": 5}).event == "webhook.received"


def test_a_long_id_becomes_a_short_key() -> None:
    one, two = (
        facts.name(GITHUB, [(b"x-github-delivery", b"x" * 300 + tail)], {}).dedupe_key
        for tail in (b"1", b"2")
    )

    assert one is not None
    assert one.startswith("sha256:")
    assert one != two


def test_of_headers_only_the_allowed_are_kept_and_never_a_credential() -> None:
    headers = [
        (b"user-agent", b"GitHub-Hookshot/1"),
        (b"x-github-event", b"push"),
        (b"x-github-delivery", b"guid"),
        (b"x-hub-signature-256", b"sha256=00"),
        (b"authorization", b"Bearer x"),
        (b"cookie", b"a=b"),
        (b"x-custom", b"y"),
    ]

    assert facts.kept_headers(GITHUB, headers) == {
        "user-agent": "GitHub-Hookshot/1",
        "x-github-event": "push",
        "x-github-delivery": "guid",
        "x-hub-signature-256-present": "true",
    }
