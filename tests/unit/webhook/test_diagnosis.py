"""Why a signature failed: each usual mistake is found, and what was expected is never told."""

from __future__ import annotations

import base64
import gzip
import hmac
import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.unit.webhook.signing import NOW, samples

from reveille_webhook.domain.diagnosis import (
    TEXTS,
    Finding,
    OtherSecret,
    diagnose,
    finding_of,
    text_of,
)
from reveille_webhook.domain.request import Request
from reveille_webhook.providers.table import PROVIDERS

SECRET = b"a signing secret of a test"
BODY = b'{"b": 1, "a": "x/y"}'
GITHUB = PROVIDERS["github"]


def made(body: bytes, secret: bytes = SECRET, algorithm: str = "sha256") -> bytes:
    return hmac.digest(secret, body, algorithm)


def found(
    value: bytes | None, *, body: bytes = BODY, others: tuple[OtherSecret, ...] = ()
) -> list[str]:
    headers = [] if value is None else [(b"x-hub-signature-256", value)]
    request = Request(headers, body)
    return [
        each.note
        for each in diagnose(GITHUB, [SECRET], others, request, NOW, list(PROVIDERS.values()))
    ]


RIGHT = b"sha256=" + made(BODY).hex().encode()


@pytest.mark.parametrize(
    ("value", "note"),
    [
        (None, "header_missing"),
        (RIGHT.removeprefix(b"sha256="), "prefix"),
        (b"sha1=" + RIGHT[7:], "prefix"),
        (b"sha256=" + RIGHT[7:].upper(), "encoding:hex in upper case"),
        (b"sha256=" + base64.b64encode(made(BODY)), "encoding:base64"),
        (b"sha256=" + base64.urlsafe_b64encode(made(BODY)).rstrip(b"="), "encoding:base64"),
        (b"sha256=" + made(BODY, algorithm="sha512").hex().encode(), "algorithm:hmac_sha512"),
        (b"sha256=" + made(BODY, SECRET + b"\n").hex().encode(), "newline_in_secret"),
        (
            b"sha256=" + made(b'{"b":1,"a":"x/y"}').hex().encode(),
            "reserialized_body:compact",
        ),
        (
            b"sha256=" + made(b'{"a":"x/y","b":1}').hex().encode(),
            "reserialized_body:keys in order",
        ),
        (
            b"sha256=" + made(json.dumps(json.loads(BODY), indent=2).encode()).hex().encode(),
            "reserialized_body:indented",
        ),
        (
            b"sha256=" + made(b'{"b":1,"a":"x\\/y"}').hex().encode(),
            "reserialized_body:compact",
        ),
        (b"sha256=" + made(BODY + b"\n").hex().encode(), "trailing_newline"),
        (b"sha256=" + b"0" * 64, None),
    ],
)
def test_a_mistake_is_found(value: bytes | None, note: str | None) -> None:
    assert found(value) == ([] if note is None else [note])


@pytest.mark.parametrize(
    ("signed", "body", "note"),
    [
        (BODY, BODY + b"\n", "trailing_newline"),
        (BODY, BODY + b"\r\n", "trailing_newline"),
        (BODY, b"\xef\xbb\xbf" + BODY, "body_encoding"),
        (b'{"b": 1}', b'{"b":1}', "reserialized_body:with spaces"),
        (rb'{"a":"\u00e9"}', '{"a":"\u00e9"}'.encode(), "reserialized_body:compact"),
    ],
)
def test_what_changed_a_body_on_its_way_is_found(signed: bytes, body: bytes, note: str) -> None:
    assert found(b"sha256=" + made(signed).hex().encode(), body=body) == [note]


def test_a_hook_without_a_live_secret_says_so_first() -> None:
    def notes(*headers: tuple[bytes, bytes]) -> list[Finding]:
        return diagnose(GITHUB, [], (), Request(headers, BODY), NOW)

    assert notes((b"x-hub-signature-256", RIGHT)) == [Finding("no_secret")]
    assert notes() == [Finding("no_secret"), Finding("header_missing")]


def test_a_header_that_came_twice_or_holds_nothing_is_told() -> None:
    right = (b"x-hub-signature-256", RIGHT)

    assert diagnose(GITHUB, [SECRET], (), Request([right, right], BODY), NOW) == [
        Finding("header_twice")
    ]
    # It came, so it is no sign of another sender.
    assert found(b"") == ["header_missing"]


@pytest.mark.parametrize("written", [b"soon", b"", None])
def test_a_time_that_cannot_be_read_is_told(written: bytes | None) -> None:
    slack = PROVIDERS["slack"]
    (one,) = samples(slack)
    name = b"x-slack-request-timestamp"
    headers = [each for each in one.request.headers if each[0] != name]
    if written is not None:
        headers.append((name, written))

    notes = diagnose(slack, [one.secret], (), replace(one.request, headers=headers), NOW)

    assert notes == [Finding("time_unreadable")]


@pytest.mark.parametrize("provider", ["okta", "cloudevents", "generic_token"])
def test_a_token_that_came_as_bearer_is_told(provider: str) -> None:
    row = PROVIDERS[provider]

    def notes(value: bytes) -> list[str]:
        request = Request([(b"authorization", value)], BODY)
        return [each.note for each in diagnose(row, [SECRET], (), request, NOW)]

    assert notes(b"Bearer " + SECRET) == ["bearer"]
    assert notes(b"Bearer " + SECRET + b"x") == []
    assert notes(b"sha256=" + SECRET) == ["prefix"]
    assert SECRET.decode() not in text_of(finding_of("bearer"))


def test_bearer_before_a_signature_is_a_prefix_like_any_other() -> None:
    teams = PROVIDERS["ms_teams"]
    (one,) = samples(teams)
    value = dict(one.request.headers)[b"authorization"].replace(b"HMAC ", b"Bearer ")
    request = replace(one.request, headers=[(b"authorization", value)])

    assert diagnose(teams, [one.secret], (), request, NOW) == [Finding("prefix")]


def test_another_secret_that_matches_is_told_by_its_hook() -> None:
    others = (OtherSecret("", b"an expired secret of ours"), OtherSecret("hook-2", b"of hook two"))
    expired = b"sha256=" + made(BODY, b"an expired secret of ours").hex().encode()
    elsewhere = b"sha256=" + made(BODY, b"of hook two").hex().encode()

    assert found(expired, others=others) == ["expired_secret"]
    assert found(elsewhere, others=others) == ["other_hooks_secret:hook-2"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b" "])
def test_a_secret_with_an_end_too_many_on_either_side_is_told(end: bytes) -> None:
    def told(ours: bytes, theirs: bytes) -> list[Finding]:
        value = b"sha256=" + made(BODY, theirs).hex().encode()
        return diagnose(GITHUB, [ours], (), Request([(b"x-hub-signature-256", value)], BODY), NOW)

    assert told(SECRET, SECRET + end) == [Finding("newline_in_secret")]
    assert told(SECRET + end, SECRET) == [Finding("newline_in_secret")]


def test_a_form_signed_over_its_content_is_told() -> None:
    form = b"payload=%7B%22a%22%3A1%7D"

    assert found(b"sha256=" + made(b'{"a":1}').hex().encode(), body=form) == ["form_content"]


@pytest.mark.parametrize("seconds", [-4000, 4000])
def test_a_clock_that_is_off_is_told_by_how_much(seconds: int) -> None:
    slack = PROVIDERS["slack"]
    (one,) = samples(slack)

    notes = diagnose(slack, [one.secret], (), one.request, NOW - seconds)

    assert notes == [Finding("clock_off", str(seconds))]


@pytest.mark.parametrize(
    ("provider", "header", "written", "unit"),
    [
        ("slack", b"x-slack-request-timestamp", str(NOW * 1000).encode(), "milliseconds"),
        ("slack", b"x-slack-request-timestamp", b"2026-09-21T14:13:20Z", "iso"),
        ("hubspot", b"x-hubspot-request-timestamp", str(NOW).encode(), "seconds"),
    ],
)
def test_a_time_in_another_unit_is_told(
    provider: str, header: bytes, written: bytes, unit: str
) -> None:
    row = PROVIDERS[provider]
    now = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC).timestamp() if unit == "iso" else NOW
    secret = b"a signing secret of a test"
    if provider == "slack":
        signed = b"v0:" + written + b":" + BODY
        value, name = b"v0=" + made(signed).hex().encode(), b"x-slack-signature"
        url = ""
    else:
        url = "https://hooks.test/h"
        signed = b"POST" + url.encode() + BODY + written
        value, name = base64.b64encode(made(signed)), b"x-hubspot-signature-v3"
    request = Request([(header, written), (name, value)], BODY, "POST", url)

    assert diagnose(row, [secret], (), request, now) == [Finding("time_unit", unit)]


def test_a_signature_over_what_was_then_compressed_is_told() -> None:
    value = b"sha256=" + made(BODY).hex().encode()
    headers = [(b"x-hub-signature-256", value), (b"content-encoding", b"GZIP")]

    assert diagnose(GITHUB, [SECRET], (), Request(headers, gzip.compress(BODY)), NOW) == [
        Finding("compressed_body")
    ]
    assert diagnose(GITHUB, [SECRET], (), Request(headers, b"no gzip"), NOW) == []
    bomb = Request(headers, gzip.compress(b"0" * (1 << 21)))
    assert diagnose(GITHUB, [SECRET], (), bomb, NOW) == []


@pytest.mark.parametrize(
    ("signed", "seen", "difference"),
    [
        ("https://hooks.test/h", "http://hooks.test/h", "with https"),
        ("http://hooks.test/h", "https://hooks.test/h", "with http"),
        ("https://hooks.test/h/", "https://hooks.test/h", "with a slash at its end"),
        ("https://hooks.test/h", "https://hooks.test/h?a=1", "without its query"),
        ("https://hooks.test/h", "https://hooks.test/another", None),
    ],
)
def test_the_address_that_was_signed_is_told(
    signed: str, seen: str, difference: str | None
) -> None:
    value = base64.b64encode(made(signed.encode() + BODY))
    request = Request([(b"x-square-hmacsha256-signature", value)], BODY, "POST", seen)

    notes = diagnose(PROVIDERS["square"], [SECRET], (), request, NOW)

    assert notes == ([] if difference is None else [Finding("url", difference)])


def test_the_scheme_of_another_sender_is_recognised() -> None:
    (one,) = samples(PROVIDERS["slack"])

    notes = diagnose(GITHUB, [SECRET], (), one.request, NOW, list(PROVIDERS.values()))

    assert notes[0] == Finding("other_provider", "slack")


def test_a_secret_that_is_decoded_otherwise_is_told() -> None:
    standard = PROVIDERS["standardwebhooks"]
    secret = base64.b64encode(b"k" * 32)
    text = b"msg_1." + str(NOW).encode() + b"." + BODY
    signature = b"v1," + base64.b64encode(made(text, secret))
    request = Request(
        [
            (b"webhook-id", b"msg_1"),
            (b"webhook-timestamp", str(NOW).encode()),
            (b"webhook-signature", signature),
        ],
        BODY,
    )

    assert diagnose(standard, [secret], (), request, NOW) == [Finding("secret_encoding", "text")]


@pytest.mark.parametrize(
    ("secret", "encoding"),
    [((b"k" * 20).hex().encode(), "hex"), (base64.b64encode(b"k" * 20), "base64")],
)
def test_a_secret_that_should_have_stayed_a_text_is_told(secret: bytes, encoding: str) -> None:
    value = b"sha256=" + made(BODY, b"k" * 20).hex().encode()
    request = Request([(b"x-hub-signature-256", value)], BODY)

    assert diagnose(GITHUB, [secret], (), request, NOW) == [Finding("secret_encoding", encoding)]


def test_every_finding_has_words_and_none_tells_a_credential() -> None:
    for code in TEXTS:
        assert text_of(finding_of(Finding(code, "x").note)) != code
    told = json.dumps([text_of(finding_of(note)) for note in found(RIGHT[:-1])])
    assert made(BODY).hex() not in told


@pytest.mark.parametrize("provider", sorted(PROVIDERS))
def test_it_never_raises(provider: str) -> None:
    row = PROVIDERS[provider]
    for one in samples(row):
        for body in (b"", b"[" * 5000, b"payload=%ff", b'"\\ud800"', b"\xff"):
            diagnose(row, [b"x" * 20], (), replace(one.request, body=body), NOW)
