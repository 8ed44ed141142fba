"""What senders ask before they send: each question gets its own answer, and nothing else does."""

from __future__ import annotations

import hmac
import json
from dataclasses import replace
from typing import Any

import pytest

from reveille_webhook.domain.parsing import FORM, parse
from reveille_webhook.domain.provider import Adopted, Asked, Reply
from reveille_webhook.domain.request import Request
from reveille_webhook.domain.signature import verify
from reveille_webhook.domain.states import SignatureState
from reveille_webhook.http.reply import Reply as Written
from reveille_webhook.http.reply import headers_of
from reveille_webhook.providers.table import PROVIDERS

SECRET = b"a secret that the sender has"
LONG = "x" * 3000


def asked(
    document: Any = None,
    *,
    headers: dict[str, str] | None = None,
    query: dict[str, str] | None = None,
    secrets: tuple[bytes, ...] = (SECRET,),
    body: bytes = b"",
) -> Asked:
    pairs = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    return Asked(Request(pairs, body), document or {}, query or {}, secrets)


def answers(provider: str, question: Asked) -> list[Reply | Adopted | None]:
    return [each.answer(question) for each in PROVIDERS[provider].handshakes]


def one(provider: str, question: Asked) -> Reply:
    (found,) = [each for each in answers(provider, question) if each is not None]
    assert isinstance(found, Reply)
    return found


def test_slack_gets_its_challenge_back() -> None:
    reply = one("slack", asked({"type": "url_verification", "challenge": "abc"}))

    assert json.loads(reply.body) == {"challenge": "abc"}


@pytest.mark.parametrize(
    ("document", "status", "body"),
    [({"type": 1, "token": "x"}, 200, b'{"type":1}'), ({"type": 0, "version": 1}, 204, b"")],
)
def test_discord_pings_of_both_kinds(document: Any, status: int, body: bytes) -> None:
    reply = one("discord", asked(document))

    assert (reply.status, reply.body) == (status, body)
    for kind in (0, 1):
        assert answers("discord", asked({"type": kind, "event": {"type": "X"}})) == [None, None]


def test_zoom_gets_the_token_signed_but_no_message_of_its_own() -> None:
    question = {"event": "endpoint.url_validation", "payload": {"plainToken": "qgg8vlvZRS6"}}
    forged = {
        "event": "endpoint.url_validation",
        "payload": {"plainToken": 'v0:1790000000:{"a":1}'},
    }

    answer = json.loads(one("zoom", asked(question)).body)

    assert answer["encryptedToken"] == hmac.new(SECRET, b"qgg8vlvZRS6", "sha256").hexdigest()
    assert one("zoom", asked(forged)).status == 400


def test_meta_is_known_by_its_token() -> None:
    query = {"hub.mode": "subscribe", "hub.challenge": "115", "hub.verify_token": SECRET.decode()}

    assert one("meta", asked(query=query)).body == b"115"
    assert one("meta", asked(query={**query, "hub.verify_token": "x"})).status == 403
    assert one("meta", asked(query=query, secrets=())).status == 403
    assert answers("meta", asked(query={"hub.mode": "subscribe"})) == [None]
    assert answers("meta", asked(query={**query, "hub.mode": "unsubscribe"})) == [None]


def test_a_token_of_meta_that_says_so_signs_nothing_and_is_the_only_one() -> None:
    token = b"verify_a token that everybody sees"
    query = {"hub.mode": "subscribe", "hub.challenge": "115", "hub.verify_token": token.decode()}
    both = asked(query=query, secrets=(SECRET, token))
    by_secret = asked(query={**query, "hub.verify_token": SECRET.decode()}, secrets=both.secrets)

    assert one("meta", both).body == b"115"
    assert one("meta", by_secret).status == 403
    for key, state in ((SECRET, SignatureState.VALID), (token, SignatureState.INVALID)):
        value = b"sha256=" + hmac.digest(key, b"{}", "sha256").hex().encode()
        request = Request([(b"x-hub-signature-256", value)], b"{}")
        assert verify(PROVIDERS["meta"], both.secrets, request, 0).state is state


@pytest.mark.parametrize(
    ("provider", "question", "body"),
    [
        ("msgraph", asked(query={"validationToken": "a b"}), b"a b"),
        (
            "okta",
            asked(headers={"x-okta-verification-challenge": "c"}),
            b'{"verification":"c"}',
        ),
        ("monday", asked({"challenge": "c"}), b'{"challenge":"c"}'),
        ("dropbox", asked(query={"challenge": "c"}), b"c"),
        ("notion", asked({"verification_token": "secret_1"}), b""),
        ("aws_sns", asked({"Type": "SubscriptionConfirmation"}), b""),
        ("aws_sns", asked({"Type": "UnsubscribeConfirmation"}), b""),
        ("woocommerce", asked(body=b"webhook_id=17"), b""),
        ("trello", asked(), b""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_simple_questions(provider: str, question: Asked, body: bytes) -> None:
    reply = one(provider, question)

    assert (reply.status, reply.body) == (200, body)


@pytest.mark.parametrize(
    "provider", ["slack", "discord", "zoom", "meta", "msgraph", "okta", "asana", "monday"]
)
def test_whatever_is_no_question_is_not_answered(provider: str) -> None:
    assert set(answers(provider, asked({"event": {"type": "x"}}, body=b"{}"))) == {None}


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        ("monday", asked({"challenge": "c", "event": {"type": "x"}})),
        ("notion", asked({"verification_token": "secret_1", "type": "page.created"})),
        ("woocommerce", asked(body=b"webhook_id=17&id=4")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_holds_more_than_a_question_is_none(provider: str, message: Asked) -> None:
    assert answers(provider, message) == [None]


@pytest.mark.parametrize(
    ("provider", "question"),
    [
        ("slack", asked({"type": "url_verification", "challenge": LONG})),
        ("monday", asked({"challenge": LONG})),
        (
            "meta",
            asked(
                query={
                    "hub.mode": "subscribe",
                    "hub.challenge": LONG,
                    "hub.verify_token": SECRET.decode(),
                }
            ),
        ),
        ("msgraph", asked(query={"validationToken": LONG})),
        ("dropbox", asked(query={"challenge": LONG})),
        ("okta", asked(headers={"x-okta-verification-challenge": LONG})),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_of_a_question_no_more_is_given_back_than_anybody_asks(
    provider: str, question: Asked
) -> None:
    assert one(provider, question).body.count(b"x") == 2000


@pytest.mark.parametrize(
    ("length", "taken"), [(15, False), (16, True), (1024, True), (1025, False)]
)
def test_a_secret_that_is_brought_is_neither_guessable_nor_endless(
    length: int, taken: bool
) -> None:
    (answer,) = answers("asana", asked(headers={"x-hook-secret": "b" * length}, secrets=()))

    assert isinstance(answer, Adopted) is taken


def test_x_gets_a_token_signed_but_no_message_of_its_own() -> None:
    reply = one("x", asked(query={"crc_token": "abc"}))

    assert json.loads(reply.body)["response_token"].startswith("sha256=")
    assert one("x", asked(query={"crc_token": '{"a":1}'})).status == 400
    assert answers("x", asked(query={"crc_token": "abc"}, secrets=())) == [None]


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", FORM, ""])
@pytest.mark.parametrize("word", [b"tweet_create_events=1", b"payload=1", b"1", b"abc"])
def test_what_x_gets_signed_for_the_asking_is_never_a_delivery(
    word: bytes, content_type: str
) -> None:
    token = word.decode()
    signed = json.loads(one("x", asked(query={"crc_token": token})).body)["response_token"]
    headers = [(b"x-twitter-webhooks-signature", signed.encode())]
    x = PROVIDERS["x"]

    assert verify(x, [SECRET], Request(headers, word), 0).state is SignatureState.VALID
    assert parse(word, content_type, always_json=x.always_json).problem


def test_asana_brings_its_secret_once() -> None:
    question = asked(headers={"x-hook-secret": "b" * 32}, secrets=())
    (first,) = answers("asana", question)

    assert isinstance(first, Adopted)
    assert (first.secret, dict(first.reply.headers)) == (b"b" * 32, {b"x-hook-secret": b"b" * 32})
    assert one("asana", replace(question, secrets=(b"b" * 32,))).status == 200
    assert one("asana", replace(question, secrets=(SECRET,))).status == 401
    assert one("asana", asked(headers={"x-hook-secret": "short"}, secrets=())).status == 401
    twice = Request([(b"x-hook-secret", b"b" * 32), (b"x-hook-secret", b"c" * 32)], b"")
    assert one("asana", replace(question, request=twice)).status == 401


@pytest.mark.parametrize(
    ("provider", "question"),
    [
        (
            "meta",
            {"hub.mode": "subscribe", "hub.challenge": "<b>", "hub.verify_token": SECRET.decode()},
        ),
        ("msgraph", {"validationToken": "<b>"}),
        ("dropbox", {"challenge": "<b>"}),
    ],
)
def test_what_is_given_back_as_it_came_is_no_page(provider: str, question: dict[str, str]) -> None:
    reply = one(provider, asked(query=question))

    assert (reply.body, reply.content_type.partition(";")[0]) == (b"<b>", "text/plain")
    # Dropbox asks for it by name.
    assert (b"x-content-type-options", b"nosniff") in reply.headers or provider != "dropbox"


def test_an_answer_that_can_have_no_body_does_not_say_how_long_it_is() -> None:
    lengths = [
        dict(headers_of(Written(status, b"", "handshake"))).get(b"content-length")
        for status in (200, 204)
    ]

    assert lengths == [b"0", None]


def test_cloudevents_are_allowed_in() -> None:
    reply = one("cloudevents", asked(headers={"webhook-request-origin": "events.example.com"}))

    assert dict(reply.headers)[b"webhook-allowed-origin"] == b"events.example.com"
