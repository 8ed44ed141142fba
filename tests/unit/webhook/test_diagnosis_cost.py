"""What finding out why a signature failed may cost, whatever a stranger posts."""

from __future__ import annotations

import base64
import gzip
import hmac
import json
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.webhook.signing import NOW, samples

from reveille_webhook.domain.diagnosis import Finding, OtherSecret, diagnose
from reveille_webhook.domain.request import Request
from reveille_webhook.providers.table import PROVIDERS

SECRET = b"a signing secret of a test"
GITHUB = PROVIDERS["github"]
MIB = 1 << 20
NUMBERS = b"0," * 127_000 + b"0"
# At the bounds of what is read: few enough values, no deeper than is read.
ROOM = b'"' + b"x" * 200_000 + b'",'
HOSTILE = {
    "numbers deep inside": b"[" * 800 + NUMBERS + b"]" * 800,
    "a MiB of numbers deep inside": b"[" * 800 + b"0," * (MIB // 2 - 1000) + b"0" + b"]" * 800,
    "a MiB of numbers": b"[" + b"0," * (MIB // 2 - 2) + b"0]",
    "lists without end": b"[" + b",".join([b"[[]]"] * 180_000) + b"]",
    "as many numbers as are read": b"[" * 31 + ROOM + b"0," * 9_900 + b"0" + b"]" * 31,
    "as many in a short body": b"[" * 31 + b"0," * 9_900 + b"0" + b"]" * 31,
    "as many lists as are read": b"[" + ROOM + b",".join([b"[[[[]]]]"] * 1_900) + b"]",
    "as many objects as are read": b"[" + ROOM + b",".join([b'{"a":{}}'] * 3_300) + b"]",
    "numbers that grow": b"[" + ROOM + b",".join([b"1e15"] * 9_900) + b"]",
    "one wide character": '["\U0001f600",'.encode() + ROOM + b"0," * 9_900 + b"0]",
    "nothing but depth": b"[" * 100_000 + b"]" * 100_000,
    "depth without an end": b'{"a":' * 50_000,
    "escaped characters": b'["' + b"\\u00e9" * 100_000 + b'"]',
    "escaped ends of lines": b'["' + b"\\n" * 100_000 + b'"]',
    "slashes": b'["' + b"/" * 200_000 + b'"]',
    "an escaped form": b"payload=" + b"%41" * 80_000,
    "a form escaped here and there": b"payload=" + b"%41a%41" * 36_000,
    "a large escaped form": b"payload=" + b"%41a" * (MIB // 4 - 4),
    "fields of a form": b"a=&" * 85_000,
    "text": b"x" * MIB,
    "much text": b"x" * (8 * MIB),
}
# Those that sign the body alone, a time too, in a list, or inside the body; and those like nobody.
SIGNERS = ("github", "slack", "standardwebhooks", "mailgun", "aws_sns", "adyen", "twilio")


def peak_of(request: Request, provider: str = "github") -> int:
    others = [OtherSecret(str(number), b"another secret %d" % number) for number in range(20)]
    tracemalloc.start()
    try:
        diagnose(PROVIDERS[provider], [SECRET], others, request, NOW, list(PROVIDERS.values()))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def allowed(body: bytes) -> int:
    """Give the memory that a body may cost; short ones what a small one may."""
    return 16 * max(len(body), 64 << 10)


def forged(body: bytes, provider: str = "github") -> Request:
    """Give a request whose signature is written as its sender writes them, over another body."""
    return replace(samples(PROVIDERS[provider])[0].request, body=body)


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_whatever_comes_takes_memory_in_proportion(body: bytes) -> None:
    assert peak_of(forged(body)) < allowed(body)


@pytest.mark.parametrize("provider", SIGNERS)
def test_for_no_sender_a_body_takes_more(provider: str) -> None:
    for body in HOSTILE.values():
        if len(body) < MIB:
            assert peak_of(forged(body, provider), provider) < allowed(body)


def test_a_bomb_takes_no_more_than_the_largest_body_that_is_tried() -> None:
    sent = forged(gzip.compress(b"0" * (64 * MIB)))
    packed = replace(sent, headers=[*sent.headers, (b"content-encoding", b"gzip")])

    assert peak_of(packed) < 4 * MIB


def test_what_is_larger_than_what_is_tried_is_not_even_copied() -> None:
    assert peak_of(forged(b"x" * (8 * MIB))) < MIB


def test_a_large_body_that_was_written_again_is_recognised() -> None:
    document = {"items": [{"id": number, "text": "é/x" * 15} for number in range(3_000)]}
    body = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    signed = json.dumps(document, indent=2).encode()
    value = b"sha256=" + hmac.digest(SECRET, signed, "sha256").hex().encode()

    found = diagnose(GITHUB, [SECRET], (), Request([(b"x-hub-signature-256", value)], body), NOW)

    assert len(body) > 200_000
    assert found == [Finding("reserialized_body", "indented")]


@pytest.mark.parametrize(("levels", "found"), [(32, ["reserialized_body"]), (33, [])])
def test_what_is_nested_deeper_than_people_nest_is_not_written_again(
    levels: int, found: list[str]
) -> None:
    body = b"[" * levels + b"1, 2" + b"]" * levels
    value = b"sha256=" + hmac.digest(SECRET, body.replace(b" ", b""), "sha256").hex().encode()

    notes = diagnose(GITHUB, [SECRET], (), Request([(b"x-hub-signature-256", value)], body), NOW)

    assert [each.code for each in notes] == found


class Counted:
    """Counts the bytes that a function is given."""

    def __init__(self, function: Any, argument: int) -> None:
        self._function = function
        self._argument = argument
        self.bytes = 0

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.bytes += len(arguments[self._argument])
        return self._function(*arguments, **options)


@pytest.mark.parametrize(
    ("size", "signatures", "tried"),
    [
        (25 * MIB, 1, False),
        (MIB, 1, True),
        (MIB, 32, False),
        (200_000, 32, True),
        (1_000, 32, True),
    ],
)
def test_however_much_there_is_to_try_the_work_is_bounded(
    monkeypatch: pytest.MonkeyPatch, size: int, signatures: int, tried: bool
) -> None:
    hashed = Counted(hmac.digest, 1)
    monkeypatch.setattr(hmac, "digest", hashed)
    request = forged(b"x" * size, "standardwebhooks")
    listed = b" ".join([dict(request.headers)[b"webhook-signature"]] * signatures)
    headers = [*request.headers[:-1], (b"webhook-signature", listed)]
    others = [
        OtherSecret(str(number), base64.b64encode(b"other %d" % number)) for number in range(20)
    ]
    secrets = [base64.b64encode(b"secret of many %d" % number) for number in range(8)]
    hashed.bytes = 0

    diagnose(PROVIDERS["standardwebhooks"], secrets, others, replace(request, headers=headers), NOW)

    assert hashed.bytes <= 32 * MIB
    assert (hashed.bytes > 0) is tried


def test_a_body_that_holds_its_signature_is_not_read_over_and_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = Counted(json.loads, 0)
    request = samples(PROVIDERS["mailgun"])[0].request
    document = json.loads(request.body)
    body = json.dumps({**document, "more": "x" * 200_000}).encode()
    monkeypatch.setattr(json, "loads", read)

    diagnose(PROVIDERS["mailgun"], [SECRET], (), replace(request, body=body), NOW)

    assert 0 < read.bytes <= 4 * MIB
