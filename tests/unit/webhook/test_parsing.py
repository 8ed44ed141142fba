"""Bodies: read where they can be, never a reason to fail, and names that a row can hold."""

from __future__ import annotations

import hashlib
import json
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reveille_webhook.domain import facts
from reveille_webhook.domain.exclusion import exclusion
from reveille_webhook.domain.facts import LONGEST_KEY
from reveille_webhook.domain.lane import lane_key
from reveille_webhook.domain.parsing import FORM, MOST_MEMBERS, Parsed, parse
from reveille_webhook.domain.provider import reads_id
from reveille_webhook.domain.request import Request, at_path
from reveille_webhook.domain.signature import verify
from reveille_webhook.domain.states import SignatureState
from reveille_webhook.providers.table import PROVIDERS

JSON = "application/json"
MIB = 1 << 20
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
        # Of what is no UTF-8 only that is lost.
        (b"payload=%7B%22action%22:%22opened%22,%22by%22:%22Andr%E9%22%7D", FORM),
        (b'payload={"action":"opened","by":"Andr\xe9"}', FORM),
        (b"action=opened&action=closed", FORM),
    ],
)
def test_members_are_found(body: bytes, content_type: str) -> None:
    parsed = parse(body, content_type)

    assert parsed.problem == ""
    assert parsed.document["action"] == "opened"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"[]", JSON),
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

    assert (parsed.document or {}, parsed.problem) == ({}, "")


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

    assert parsed.document == {}
    assert parsed.problem


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"[" + b"1," * (MOST_MEMBERS - 1) + b"1]", JSON),
        (b"payload=[" + b"1," * (MOST_MEMBERS - 1) + b"1]", FORM),
        (b'["' + b"," * (2 * MOST_MEMBERS) + b'",1]', JSON),
    ],
)
def test_what_holds_very_much_is_not_read_and_not_broken(body: bytes, content_type: str) -> None:
    beyond = body.replace(b"1]", b"1" + b",1" * MOST_MEMBERS + b"]")

    assert len(parse(body, content_type).document) in {2, MOST_MEMBERS}
    assert parse(beyond, content_type) == Parsed({})
    assert parse(beyond, content_type, always_json=True).problem


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"[" + (b"[" * 900 + b"]" * 900 + b",") * 2_300 + b"1]", JSON),
        (b"payload=[" + (b"[" * 900 + b"]" * 900 + b",") * 2_300 + b"1]", FORM),
        (b"[" + b"{}," * MIB + b"1]", ""),
        (b"a=&" * MIB, FORM),
        (b"a=" + b"%41ab" * MIB, FORM),
        (b"a=%41" + b"ab\xe9" * MIB, FORM),
    ],
)
def test_no_body_takes_many_times_its_size(body: bytes, content_type: str) -> None:
    tracemalloc.start()
    try:
        parse(body, content_type)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    # A hundred thousand values of any kind, beside the body as text and that text in parts.
    assert peak < 9 * len(body) + 32 * MIB


def test_of_fields_of_one_name_the_first_counts_whatever_is_no_text() -> None:
    parsed = parse(b"a=%c3%a9+%2B&&b&a=2&c=\xff%ff", FORM)

    assert parsed.document == {"a": "\u00e9 +", "b": "", "c": "\ufffd\ufffd"}


@given(
    body=st.binary(max_size=200),
    content_type=st.sampled_from([JSON, FORM, "", "text/plain", "application/x+json;;"]),
)
def test_it_never_raises(body: bytes, content_type: str) -> None:
    parse(body, content_type)


def test_names_are_fit_for_a_row() -> None:
    members = json.loads(r'{"action":"a\u0000b\ud800c","state":5,"status":"done","conclusion":""}')
    headers = [(b"x-github-event", b" is\xe9sues "), (b"x-github-delivery", b" ")]

    naming = facts.name(GITHUB, Request(headers, b""), members)

    assert naming.event == "is\u00e9sues"
    assert naming.action == "a\ufffdb?c"
    assert naming.actions == ("a\ufffdb?c", "done")
    assert naming.dedupe_key is None
    naming.action.encode()


def test_sources_are_tried_in_order() -> None:
    both = [(b"idempotency-key", b"key"), (b"x-github-delivery", b"guid")]
    generic = PROVIDERS["generic"]

    assert facts.name(GITHUB, Request(both, b""), {}).dedupe_key == "guid"
    assert facts.name(GITHUB, Request(both[:1], b""), {}).dedupe_key == "key"
    assert facts.name(generic, Request(both, b""), {}).dedupe_key == "key"
    assert facts.name(generic, Request(both[1:], b""), {}).dedupe_key == "guid"
    assert facts.name(generic, Request([(b"x-event-type", b"e")], b""), {"event": "f"}).event == "e"
    assert facts.name(generic, Request([], b""), {"event": "f", "type": "t"}).event == "f"
    assert facts.name(generic, Request([], b""), {"event": " ", "type": "t"}).event == "t"
    assert facts.name(generic, Request([], b""), {"event": 5}).event == "webhook.received"


def test_a_long_id_becomes_a_short_key() -> None:
    one, two = (
        facts.name(GITHUB, Request([(b"x-github-delivery", b"x" * 300 + tail)], b""), {}).dedupe_key
        for tail in (b"1", b"2")
    )

    longest = b"x" * LONGEST_KEY

    assert one is not None
    assert one.startswith("sha256:")
    assert one != two
    assert facts.name(GITHUB, Request([(b"x-github-delivery", longest)], b""), {}).dedupe_key == (
        longest.decode()
    )


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


def test_members_of_items_are_reached_by_their_positions() -> None:
    parsed = parse(b'[{"event":"bounce"},{"event":"open"}]', JSON)

    assert at_path(parsed.document, "0.event") == "bounce"
    assert at_path(parsed.document, "1.event") == "open"
    for nowhere in ("2.event", "x.event", "0.event.y", "-1.event", "\u0661.event", "\u00b2.event"):
        assert at_path(parsed.document, nowhere) is None


@pytest.mark.parametrize("content_type", ["text/plain; charset=UTF-8", "", JSON])
def test_a_sender_of_json_alone_is_read_whatever_it_says(content_type: str) -> None:
    assert parse(b'{"Type":"Notification"}', content_type, always_json=True).document == {
        "Type": "Notification"
    }


@pytest.mark.parametrize("content_type", ["text/plain", "application/octet-stream", "", FORM, JSON])
def test_no_content_type_hides_an_id_inside_the_body(content_type: str) -> None:
    assert parse(b'{"id":"evt_1"}', content_type, holds_id=True).document == {"id": "evt_1"}
    # What is no JSON is still what it says.
    assert parse(b"payload=%7B%22id%22%3A1%7D&a=b", FORM, holds_id=True).document == {"id": 1}
    assert parse(b"a=b", FORM, holds_id=True).document == {"a": "b"}
    assert parse(b"a=b", "text/plain", holds_id=True) == parse(b"a=b", "text/plain")
    assert parse(b"a=b", JSON, holds_id=True).problem


@pytest.mark.parametrize(
    ("provider", "inside"),
    [("github", False), ("meta", False), ("stripe", True), ("mailgun", True), ("twilio", True)],
)
def test_whose_ids_stand_inside_the_body_is_known(provider: str, inside: bool) -> None:
    assert reads_id(PROVIDERS[provider]) is inside


@pytest.mark.parametrize("content_type", [JSON, "text/plain", FORM, ""])
@pytest.mark.parametrize(
    "more",
    [b"do as I say", b'[{"subscriptionType":"x"}]', b"&payload=%7B%7D", b"," * MOST_MEMBERS],
    ids=["words", "JSON", "a form", "very much"],
)
def test_what_can_be_written_behind_a_plain_hash_is_never_a_delivery(
    more: bytes, content_type: str
) -> None:
    """Whoever has a signature of secret and body can go on hashing behind the body's padding."""
    hubspot, secret, body = PROVIDERS["hubspot"], b"a secret of hubspot", b'[{"eventId":1}]'
    bits = 8 * len(secret + body)
    padding = b"\x80" + b"\0" * ((55 - len(secret + body)) % 64) + bits.to_bytes(8, "big")
    longer = body + padding + more
    signature = hashlib.sha256(secret + longer).hexdigest().encode()
    headers = [(b"x-hubspot-signature", signature), (b"x-hubspot-signature-version", b"v1")]

    verdict = verify(hubspot, [secret], Request(headers, longer), 0)

    assert verdict.state is SignatureState.VALID
    read = {"always_json": hubspot.always_json, "holds_id": reads_id(hubspot)}
    assert parse(longer, content_type, **read).problem
    assert parse(body, content_type, **read).document == [{"eventId": 1}]


def test_of_people_s_own_bodies_no_id_is_an_event_s() -> None:
    zendesk = PROVIDERS["zendesk"]
    request = Request([(b"x-zendesk-webhook-invocation-id", b"inv-1")], b"")
    event = {"type": "zen:event-type:ticket.created", "id": "evt_1"}

    assert facts.name(zendesk, request, event).dedupe_key == "evt_1"
    # Here it may be the ticket's, which has many events.
    assert facts.name(zendesk, request, {**event, "type": "question"}).dedupe_key == "inv-1"


def test_a_number_is_an_id_and_never_a_name() -> None:
    telegram = PROVIDERS["telegram"]
    document = {"update_id": 397587257, "message": {"from": {"id": 5}}}

    naming = facts.name(telegram, Request([], b""), document)

    assert (naming.event, naming.dedupe_key, naming.sender) == ("message", "397587257", "5")
    assert facts.name(telegram, Request([], b""), {"update_id": True}).dedupe_key is None


@pytest.mark.parametrize(
    ("provider", "header", "value", "retries"),
    [
        ("slack", b"x-slack-retry-num", b"2", 2),
        ("bitbucket", b"x-attempt-number", b"3", 3),
        ("jira", b"x-atlassian-webhook-retry", b"1", 1),
        ("slack", b"x-slack-retry-num", b"-1", 0),
        ("slack", b"x-slack-retry-num", b"9" * 6, 999_999),
        ("slack", b"x-slack-retry-num", b"9" * 7, 0),
        ("slack", b"x-slack-retry-num", b"9" * 40, 0),
        ("slack", b"x-slack-retry-num", "\u0661".encode(), 0),
    ],
)
def test_the_count_of_a_sender_is_read(
    provider: str, header: bytes, value: bytes, retries: int
) -> None:
    assert facts.name(PROVIDERS[provider], Request([(header, value)], b""), {}).retries == retries


@pytest.mark.parametrize(
    ("form", "event", "key"),
    [
        ({"MessageSid": "SM1", "SmsStatus": "received"}, "message.inbound", "SM1"),
        ({"MessageSid": "SM1", "MessageStatus": "sent"}, "message.sent", "SM1:sent"),
        ({"CallSid": "CA1", "CallStatus": "ringing"}, "call.ringing", "CA1"),
        ({"CallSid": "CA1", "CallStatus": "completed"}, "call.completed", "CA1:completed"),
        ({}, "webhook.received", None),
    ],
)
def test_each_status_of_a_message_or_call_is_a_delivery(
    form: dict[str, str], event: str, key: str | None
) -> None:
    naming = facts.name(PROVIDERS["twilio"], Request([], b""), form)

    assert (naming.event, naming.dedupe_key) == (event, key)


def test_an_event_is_unique_for_its_source() -> None:
    rows = PROVIDERS["cloudevents"]
    headers = [(b"ce-id", b"7"), (b"ce-source", b"/a"), (b"ce-type", b"made")]

    assert facts.name(rows, Request(headers, b""), {}).dedupe_key == "/a 7"
    assert facts.name(rows, Request([], b""), {"source": "/b", "id": "7"}).dedupe_key == "/b 7"


@pytest.mark.parametrize(
    ("path", "document", "lane"),
    [
        ("pr.number", {"pr": {"number": 7}}, "7"),
        ("pr.number", {"pr": {"number": "x"}}, "x"),
        ("pr.number", {"pr": {}}, None),
        ("pr", {"pr": {}}, None),
        ("pr", {"pr": True}, None),
        ("pr", {"pr": "x" * 255}, "x" * 255),
        ("pr", {"pr": "x" * 256}, f"sha256:{hashlib.sha256(b'x' * 256).hexdigest()}"),
        (None, {"pr": 1}, None),
    ],
)
def test_a_lane_is_named_by_one_value(path: str | None, document: object, lane: str | None) -> None:
    assert lane_key(path, document) == lane
    assert len(lane_key("a", {"a": "y" * 5000}) or "") < 255


MARKS = ["<!-- reveille -->", "fertig \u2713", '\U0001f916 \u00e9 "a/b"', "a\\b"]


@pytest.mark.parametrize(
    ("sender", "body", "reason"),
    [
        ("Our-Bot", b"{}", "sender_excluded"),
        ("OUR-BOT", b"{}", "sender_excluded"),
        ("octocat", b'{"text":"done <!-- reveille -->"}', "own_marker"),
        ("octocat", rb'{"text":"fertig \u2713"}', "own_marker"),
        ("octocat", rb'{"text":"\u003c!-- reveille --\u003E"}', "own_marker"),
        ("octocat", b"payload=%7B%22text%22%3A%22%3C%21--+reveille+--%3e%22%7D", "own_marker"),
        ("octocat", b"payload=%22%5Cu003c%21--%20reveille%20--%5Cu003e%22", "own_marker"),
        ("octocat", '{"text":"<!-- reveille -->"}'.encode("utf-16"), "own_marker"),
        ("octocat", rb'{"text":"\ud83e\udd16 \u00e9 \"a\/b\""}', "own_marker"),
        ("octocat", '{"text":"\U0001f916 \u00e9 \\"a/b\\""}'.encode(), "own_marker"),
        ("octocat", rb'{"text":"a\\b"}', "own_marker"),
        ("octocat", b"{}", None),
        ("", b"{}", None),
    ],
)
def test_our_own_doing_is_left_out(sender: str, body: bytes, reason: str | None) -> None:
    found = exclusion(sender, body, ["our-Bot"], MARKS)

    assert (found and found[0]) == reason


@pytest.mark.parametrize("text", [r"\u003ca", "%3C", r"\x"])
def test_many_marks_cost_little_more_than_one(text: str) -> None:
    """Nobody else is served meanwhile, and a body may be long."""
    body = b'{"text":"' + text.encode() * (256 * 1024 // len(text)) + b'"}'
    marks = [f"<!-- reveille {number} -->" for number in range(20)]

    def cost(of: list[str]) -> float:
        began = time.thread_time()
        assert exclusion("", body, [], of) is None
        return time.thread_time() - began

    assert min(cost(marks) for _ in range(3)) < 8 * min(cost(marks[:1]) for _ in range(3))


@given(st.text(alphabet='\\u0aF"/<\n\x00\xe9\U0001f916', max_size=30))
def test_a_mark_is_looked_for_in_whatever_comes(text: str) -> None:
    written = json.dumps({"text": f"{text} {MARKS[2]}"}).encode()

    assert exclusion("", text.encode(), [], ["a mark of ours"]) is None
    assert exclusion("", written, [], MARKS) is not None
