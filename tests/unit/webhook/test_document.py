"""What is read of a body before anybody vouches for it, and what that may cost."""

from __future__ import annotations

import base64
import json
import tracemalloc
from dataclasses import replace
from urllib.parse import parse_qsl

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.webhook.signing import NOW, samples

from reveille_runtime.plain_json import _UP_TO_MARK
from reveille_webhook.domain.document import (
    MOST_FIELDS,
    MOST_STRAYS,
    MOST_VALUES,
    document_of,
    form_of,
    query_of,
)
from reveille_webhook.domain.provider import Asked
from reveille_webhook.domain.request import Request
from reveille_webhook.domain.signature import verify
from reveille_webhook.domain.states import SignatureState
from reveille_webhook.providers.table import PROVIDERS
from reveille_webhook.usecases.receive import _asked

MIB = 1 << 20
# Those whose credential, time or signed fields are inside the body.
READ_FIRST = ("adyen", "aws_sns", "linear", "mailgun", "msgraph", "twilio")
HOSTILE = {
    "lists": b"[" + b"[]," * (MIB // 3) + b"[]]",
    "lists in lists": b"[" + (b"[" * 900 + b"]" * 900 + b",") * 580 + b"1]",
    "as many lists as are read": b"[" + (b"[" * 900 + b"]" * 900 + b",") * 22 + b"1]",
    "as many objects": b"[" + (b'{"a":' * 900 + b"1" + b"}" * 900 + b",") * 22 + b"1]",
    "as many names": b"{" + b",".join(b'"k%d":%d.5' % (n, n) for n in range(19_990)) + b"}",
    "names": b"{" + b",".join(b'"k%d":%d.5' % (n, n) for n in range(60_000)) + b"}",
    "wide lists": ("[" + "[]," * 100_000 + "1]").encode("utf-16"),
    "wide characters": ('["' + "\U0001f600" * (MIB // 4) + '"]').encode(),
    "one wide character": b'["' + b"x" * MIB + "\U0001f600".encode() + b'"]',
    "half a quotation mark": ('["\u2241",' + ("[" * 900 + "]" * 900 + ",") * 290 + "1]").encode(
        "utf-16"
    ),
    "escapes": b'["' + b"\\u00e9" * (MIB // 6) + b'"]',
    "a text without an end": b'["' + b'\\",' * (MIB // 3),
    "many without an end": b'"' * MIB + b"[" * (MOST_VALUES + 1),
    "fields": b"a=&" * (MIB // 3),
    "an escaped field": b"a=" + b"%41" * (MIB // 3),
    "bare percent signs": b"a=" + b"%" * MIB,
    "one escaped here and there": b"a=" + b"%41ab" * (MIB // 5),
    "one that is hardly escaped": b"a=%41" + b"ab\xe9" * (MIB // 3),
}


def peak_of(provider: str, body: bytes) -> int:
    one = samples(PROVIDERS[provider])[0]
    tracemalloc.start()
    try:
        verdict = verify(PROVIDERS[provider], [one.secret], replace(one.request, body=body), NOW)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert verdict.state is not SignatureState.VALID
    return peak


@pytest.mark.parametrize("provider", READ_FIRST)
@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_what_is_read_before_it_is_verified_takes_little_more_than_its_text(
    provider: str, body: bytes
) -> None:
    # A text of wide characters is four times as long, once as the whole and once as its part.
    assert peak_of(provider, body) < 9 * len(body) + 4 * MIB


@pytest.mark.parametrize("text", [b"", b'",[{\\",\\\\"'], ids=["plain", "beside a text"])
def test_the_bound_is_the_number_of_values_outside_of_texts(text: bytes) -> None:
    """Two brackets and two commas stand around the numbers."""
    most = b"[[" + b"1," * (MOST_VALUES - 4) + b"1]," + (text or b"1") + b",1]"
    beyond = most.replace(b"1,", b"1,1,", 1)

    assert document_of(most) is not None
    assert document_of(beyond) is None


@pytest.mark.parametrize(
    "texts", [b'""' * MIB, b'"a" ' * MIB, b'"\\n"' * MIB], ids=["empty", "apart", "escaped"]
)
def test_values_are_counted_in_as_many_steps_as_there_are(texts: bytes) -> None:
    """A body may be nothing but texts, and nobody else is served meanwhile."""
    body = b"[" + texts + b'1,"' + b"," * (MOST_VALUES + 1) + b'"]'

    found = [each[1] for each in _UP_TO_MARK.finditer(body)]
    assert found == [b"[", b",", None, None]
    assert document_of(b"[1," + b'"' + b"," * (MOST_VALUES + 1) + b'"]') is not None


def test_a_long_text_is_no_large_document() -> None:
    """What a topic carries is one text, and may be a whole document itself."""
    key = rsa.generate_private_key(65537, 2048)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    fields = {
        "Message": json.dumps([{"n": number, "q": '"'} for number in range(10_000)]),
        "MessageId": "m-1",
        "Timestamp": "2026-09-21T14:13:20.000Z",
        "TopicArn": "arn:aws:sns:eu-west-1:1:t",
        "Type": "Notification",
    }
    text = "".join(f"{name}\n{value}\n" for name, value in fields.items()).encode()
    signature = base64.b64encode(key.sign(text, PKCS1v15(), SHA256())).decode()
    body = json.dumps({**fields, "SignatureVersion": "2", "Signature": signature}).encode()

    assert body.count(b"{") + body.count(b",") > MOST_VALUES
    verdict = verify(PROVIDERS["aws_sns"], [public], Request([], body), NOW)
    assert verdict.state is SignatureState.VALID


FORMS = st.text(alphabet="a=&+%4f\xe9;", max_size=40).map(lambda text: text.encode("latin-1"))


@given(FORMS)
def test_a_form_is_read_as_everybody_reads_it(body: bytes) -> None:
    usual = parse_qsl(body.decode("latin-1"), keep_blank_values=True, encoding="latin-1")

    assert form_of(body) == [
        (name.encode("latin-1"), value.encode("latin-1")) for name, value in usual
    ]


@given(FORMS)
def test_a_query_is_read_as_everybody_reads_it(query: bytes) -> None:
    usual = parse_qsl(query.decode("latin-1"), keep_blank_values=True, encoding="latin-1")
    text = query.decode("latin-1")

    found = query_of(f"https://hooks.example.com/hooks/t?{text}")
    assert query_of("https://hooks.example.com/hooks/t") == {}
    assert found == {
        name.encode("latin-1").decode("utf-8", "replace"): value.encode("latin-1").decode(
            "utf-8", "replace"
        )
        for name, value in usual
    }


def test_percent_signs_that_escape_nothing_are_no_form() -> None:
    """Each is a step of its own, and nobody else is served meanwhile."""
    strays = b"a=" + b"%" * MOST_STRAYS

    assert form_of(strays) == [(b"a", b"%" * MOST_STRAYS)]
    assert form_of(strays + b"%") is None
    assert form_of(b"&".join([b"a=%", strays])) is None


@pytest.mark.parametrize("before", range(3))
def test_a_long_value_is_read_in_pieces_that_cut_no_escape(before: int) -> None:
    begin = b"x" * before

    assert form_of(b"a=" + begin + b"%41" * 50_000) == [(b"a", begin + b"A" * 50_000)]


def test_a_form_has_as_many_fields_as_are_read_later() -> None:
    assert len(form_of(b"&".join([b"a=1"] * MOST_FIELDS)) or ()) == MOST_FIELDS
    assert form_of(b"&".join([b"a=1"] * (MOST_FIELDS + 1))) is None


@pytest.mark.parametrize("provider", ["asana", "monday", "msgraph", "woocommerce"])
def test_what_is_too_long_for_a_question_is_not_read_for_one(provider: str) -> None:
    def ask(body: bytes) -> tuple[Asked, int]:
        headers = [(b"content-type", b"application/json")]
        tracemalloc.start()
        try:
            asked = _asked(PROVIDERS[provider], Request(headers, body), ())
            return asked, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    asked, _ = ask(b'{"challenge":"' + b"c" * 1000 + b'"}')
    assert asked.document == {"challenge": "c" * 1000}
    for body in HOSTILE.values():
        asked, peak = ask(body)
        assert asked.document == {}
        assert peak < 100_000
