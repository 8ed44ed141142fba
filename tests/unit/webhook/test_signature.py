"""Verification: every known answer, an answer for whatever is given, and no byte that is free."""

from __future__ import annotations

import base64
import hmac
import json
import re
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding as KeyEncoding
from cryptography.hazmat.primitives.serialization import PublicFormat, load_pem_public_key
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.webhook.signing import NOW, Signed, samples

from reveille_webhook.domain.generic import Generic, misplaced, told, violations
from reveille_webhook.domain.keys import key_of, seconds_of
from reveille_webhook.domain.provider import Handshake, Provider, Reply, problems
from reveille_webhook.domain.request import Request, values_of
from reveille_webhook.domain.scheme import (
    Algorithm,
    Encoding,
    Header,
    Key,
    Kind,
    Scheme,
    Stamp,
    Unit,
)
from reveille_webhook.domain.signature import MOST_ASYMMETRIC, MOST_SIGNATURES, verify
from reveille_webhook.domain.states import SignatureState
from reveille_webhook.providers.table import PROVIDERS

LINES = (Path(__file__).parents[2] / "data/signatures/vectors.jsonl").read_text("utf-8")
VECTORS: list[dict[str, Any]] = [json.loads(line) for line in LINES.splitlines()]
# No request of theirs is published; what `samples` signs has to do. A new sender brings its own.
NEVER_TAKEN = {
    "anthropic",
    "asana",
    "aws_sns",
    "cloudevents",
    "dropbox",
    "generic",
    "generic_token",
    "monday",
    "msgraph",
    "okta",
    "replicate",
    "woocommerce",
    "x",
}
NEVER_REFUSED = {"circleci", "github_sha1", "mailgun", "trello"}
GITHUB = PROVIDERS["github"]
SECRET, BODY = b"It's a Secret to Everybody", b"Hello, World!"
VALID = b"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
BARE = Scheme((Header("x-signature"),), (Kind(Algorithm.HMAC_SHA256),))
SIGNED = [
    pytest.param(provider, signed, id=f"{name}-{index}")
    for name, provider in sorted(PROVIDERS.items())
    for index, signed in enumerate(samples(provider))
]


def request_of(vector: dict[str, Any]) -> Request:
    body = base64.b64decode(vector["body_b64"]) if "body_b64" in vector else vector["body"].encode()
    pairs = vector.get("headers_list") or list(vector["headers"].items())
    headers = [(name.lower().encode(), value.encode()) for name, value in pairs]
    return Request(headers, body, vector.get("method", "POST"), vector.get("url", ""))


def signed(*values: bytes, body: bytes = BODY) -> Request:
    return Request([(b"x-hub-signature-256", value) for value in values], body)


def state_of(provider: Provider, secrets: list[bytes], request: Request) -> SignatureState:
    return verify(provider, secrets, request, NOW).state


def test_every_vector_is_answered_right() -> None:
    wrong = []
    for vector in VECTORS:
        generic = Generic(**vector["config"]) if "config" in vector else None
        provider = told(PROVIDERS[vector["provider"]], generic)
        secrets = [
            text.encode() for text in (vector["secret"], *vector.get("secrets_also_active", ()))
        ]
        state = verify(provider, secrets, request_of(vector), vector.get("now", NOW)).state
        if (state is SignatureState.VALID) != vector["valid"]:
            wrong.append((vector["id"], vector["provider"], vector["note"], state))

    assert wrong == []


def test_no_vector_is_lost() -> None:
    ids = [vector["id"] for vector in VECTORS]

    assert len(set(ids)) == len(ids)
    # What comes later is named after its sender.
    assert sum(re.fullmatch(r"sv[0-9]{3}", each) is not None for each in ids) == 373


def test_every_sender_has_a_vector_that_is_taken_and_one_that_is_refused() -> None:
    taken = {vector["provider"] for vector in VECTORS if vector["valid"]}
    refused = {vector["provider"] for vector in VECTORS if not vector["valid"]}

    assert set(PROVIDERS) - taken == NEVER_TAKEN
    assert set(PROVIDERS) - refused == NEVER_TAKEN | NEVER_REFUSED


def test_of_hexadecimal_one_spelling_counts() -> None:
    digits = VALID.removeprefix(b"sha256=").upper()

    assert state_of(GITHUB, [SECRET], signed(VALID)) is SignatureState.VALID
    assert state_of(GITHUB, [SECRET], signed(b"sha256=" + digits)) is SignatureState.INVALID
    assert state_of(GITHUB, [SECRET], signed(b"SHA256=" + VALID[7:])) is SignatureState.INVALID


def test_any_of_several_secrets_matches_and_is_told() -> None:
    verdict = verify(GITHUB, [b"another", SECRET], signed(VALID), NOW)

    assert (verdict.state, verdict.matched) == (SignatureState.VALID, 1)
    assert (verdict.covers_body, verdict.signed) == (True, b"")


@pytest.mark.parametrize("values", [(), (b"",)])
def test_nothing_is_missing(values: tuple[bytes, ...]) -> None:
    assert state_of(GITHUB, [SECRET], signed(*values)) is SignatureState.MISSING


def test_an_empty_secret_passes_nothing_not_even_what_it_signs() -> None:
    by_nothing = b"sha256=" + hmac.new(b"", BODY, "sha256").hexdigest().encode()

    assert state_of(GITHUB, [b""], signed(by_nothing)) is SignatureState.INVALID
    assert state_of(GITHUB, [], signed(VALID)) is SignatureState.INVALID
    assert state_of(GITHUB, [b"", SECRET], signed(VALID)) is SignatureState.VALID


def test_the_better_of_two_signatures_counts_wherever_it_comes_along() -> None:
    old = b"sha1=" + hmac.new(SECRET, BODY, "sha1").hexdigest().encode()
    legacy = PROVIDERS["github_sha1"]
    alone = Request([(b"x-hub-signature", old)], BODY)
    beside = Request([(b"x-hub-signature", old), (b"x-hub-signature-256", VALID[:-1] + b"0")], BODY)

    assert state_of(legacy, [SECRET], alone) is SignatureState.VALID
    assert state_of(legacy, [SECRET], beside) is SignatureState.INVALID
    assert state_of(GITHUB, [SECRET], alone) is SignatureState.MISSING


def test_a_version_that_came_twice_chooses_no_scheme() -> None:
    hubspot = PROVIDERS["hubspot"]
    version = b"x-hubspot-signature-version"
    versioned = [
        one for one in samples(hubspot) if values_of(one.request.headers, version.decode())
    ]

    for one in versioned:
        twice = replace(one.request, headers=[*one.request.headers, (version, b"v3")])
        assert state_of(hubspot, [one.secret], one.request) is SignatureState.VALID
        assert state_of(hubspot, [one.secret], twice) is SignatureState.MISSING
    assert len(versioned) == 2


def test_more_signatures_than_anybody_sends_are_not_tried() -> None:
    pagerduty = PROVIDERS["pagerduty"]
    right = b"v1=" + hmac.new(SECRET, BODY, "sha256").hexdigest().encode()
    few = Request([(b"x-pagerduty-signature", b",".join([b"v1=00"] * 5 + [right]))], BODY)
    many = Request([(b"x-pagerduty-signature", b",".join([b"v1=00"] * 500 + [right]))], BODY)

    assert state_of(pagerduty, [SECRET], few) is SignatureState.VALID
    assert state_of(pagerduty, [SECRET], many) is SignatureState.INVALID


@pytest.mark.parametrize("signatures", [1, MOST_SIGNATURES])
def test_what_is_signed_is_hashed_once_for_each_secret_however_many_are_listed(
    monkeypatch: pytest.MonkeyPatch, signatures: int
) -> None:
    right = b"v1=" + hmac.digest(SECRET, BODY, "sha256").hex().encode()
    listed = b",".join([b"v1=" + b"00" * 32] * (signatures - 1) + [right])
    hashed: list[bytes] = []
    digest = hmac.digest

    def counted(key: bytes, message: bytes, algorithm: Any) -> bytes:
        hashed.append(key)
        return digest(key, message, algorithm)

    monkeypatch.setattr(hmac, "digest", counted)
    request = Request([(b"x-pagerduty-signature", listed)], BODY)
    verdict = verify(PROVIDERS["pagerduty"], [b"another", SECRET, b"a third"], request, NOW)

    assert (verdict.state, verdict.matched) == (SignatureState.VALID, 1)
    assert hashed == [b"another", SECRET, b"a third"]


@pytest.mark.parametrize(
    ("before", "state"), [(MOST_ASYMMETRIC - 1, "valid"), (MOST_ASYMMETRIC, "invalid")]
)
def test_of_signatures_by_private_keys_few_are_tried(before: int, state: str) -> None:
    """Each has the whole message hashed once more; those by a shared secret do not count."""
    (one,) = (
        each for each in samples(PROVIDERS["standardwebhooks"]) if each.secret[:5] == b"whpk_"
    )
    (right,) = values_of(one.request.headers, "webhook-signature")
    shared = b"v1," + base64.b64encode(b"\0" * 32)
    wrong = b"v1a," + base64.b64encode(b"\0" * 64)
    listed = b" ".join([shared] * 20 + [wrong] * before + [right])

    assert (
        state_of(
            PROVIDERS["standardwebhooks"],
            [one.secret],
            replace(
                one.request,
                headers=[*one.request.headers[:-1], (b"webhook-signature", listed)],
            ),
        )
        == state
    )


def test_an_id_cannot_take_over_a_part_of_the_body() -> None:
    """They are signed with dots between them, and a time: a body may hold the like."""
    text = b'{"text":"hello.%d.anything"}' % NOW
    message = b"msg_1.%d.%s" % (NOW - 10**6, text)
    signature = b"v1," + base64.b64encode(hmac.digest(b"a key of a sender", message, "sha256"))
    id_, _, rest = message.rpartition(b".%d." % NOW)
    moved = [(b"webhook-id", id_), (b"webhook-timestamp", b"%d" % NOW)]
    request = Request([*moved, (b"webhook-signature", signature)], rest)
    secret = b"whsec_" + base64.b64encode(b"a key of a sender")

    assert rest == b'anything"}'
    assert state_of(PROVIDERS["standardwebhooks"], [secret], request) is SignatureState.INVALID


@pytest.mark.parametrize("id_", [b"evt.1", b"a.b.c", b"v1.2.3", b"1790000000.1790000000"])
def test_an_id_may_hold_dots(id_: bytes) -> None:
    signed_ = hmac.digest(b"a key of a sender", id_ + b".%d." % NOW + BODY, "sha256")
    headers = [
        (b"webhook-id", id_),
        (b"webhook-timestamp", b"%d" % NOW),
        (b"webhook-signature", b"v1," + base64.b64encode(signed_)),
    ]
    secret = b"whsec_" + base64.b64encode(b"a key of a sender")

    state = state_of(PROVIDERS["standardwebhooks"], [secret], Request(headers, BODY))
    assert state is SignatureState.VALID


@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=lambda each: each.name)
@settings(max_examples=15)
@given(
    value=st.binary(max_size=100),
    body=st.one_of(st.binary(max_size=50), st.just(b'{"signature":{"signature":1}}')),
    secret=st.binary(max_size=80),
    now=st.floats(min_value=0, max_value=4e9),
)
def test_it_never_raises(
    provider: Provider, value: bytes, body: bytes, secret: bytes, now: float
) -> None:
    names = {each for one in samples(provider) for each, _ in one.request.headers}
    headers = [(name, value) for name in sorted(names)]
    request = Request(headers, body, "POST", "https://[:::/x?bodySHA256=\ud800")

    state = verify(provider, [secret], request, now).state

    # A credential that is compared as it is can be guessed, by chance; a signature cannot.
    plain = provider.schemes[0].encoding is Encoding.PLAIN
    assert plain or state in {SignatureState.INVALID, SignatureState.MISSING}


@pytest.mark.parametrize(("provider", "one"), SIGNED)
def test_what_a_sender_signs_is_taken(provider: Provider, one: Signed) -> None:
    assert state_of(provider, [one.secret], one.request) is SignatureState.VALID


@pytest.mark.parametrize(("provider", "one"), SIGNED)
@settings(max_examples=25)
@given(position=st.integers(min_value=0, max_value=10**6), bit=st.integers(0, 7))
def test_one_byte_of_the_credential_decides(
    provider: Provider, one: Signed, position: int, bit: int
) -> None:
    if one.where:
        headers = [
            (name, flipped(value, position, bit) if name == one.where.encode() else value)
            for name, value in one.request.headers
        ]
        changed = replace(one.request, headers=headers)
    else:
        changed = replace(one.request, body=_in_the_credential(one, position, bit))

    assert state_of(provider, [one.secret], changed) is not SignatureState.VALID


@pytest.mark.parametrize(
    ("provider", "one"),
    [each for each in SIGNED if each.values[1].covers_body],  # type: ignore[union-attr]  # pytest.param
)
@settings(max_examples=25)
@given(position=st.integers(min_value=0, max_value=10**6), bit=st.integers(0, 7))
def test_one_byte_of_the_body_decides(
    provider: Provider, one: Signed, position: int, bit: int
) -> None:
    changed = replace(one.request, body=flipped(one.request.body, position, bit))

    assert state_of(provider, [one.secret], changed) is not SignatureState.VALID


@pytest.mark.parametrize(("provider", "one"), SIGNED)
@settings(max_examples=15)
@given(position=st.integers(min_value=0, max_value=10**6), bit=st.integers(0, 7))
def test_one_byte_of_whatever_else_is_signed_decides(
    provider: Provider, one: Signed, position: int, bit: int
) -> None:
    scheme = one.scheme or BARE
    names = {
        source.name.encode()
        for source in (scheme.id, scheme.stamp and scheme.stamp.source)
        if isinstance(source, Header)
    }
    headers = [
        (name, flipped(value, position, bit) if name in names else value)
        for name, value in one.request.headers
    ]
    changed = [replace(one.request, headers=headers)] if names else []
    if "{url}" in scheme.message:
        url = flipped(one.request.url.encode(), position, bit % 7).decode("latin-1")
        changed.append(replace(one.request, url=url))
    if "{method}" in scheme.message:
        changed.append(replace(one.request, method="PUT"))

    assert all(
        state_of(provider, [one.secret], each) is not SignatureState.VALID for each in changed
    )


def flipped(value: bytes, position: int, bit: int) -> bytes:
    changed = bytearray(value)
    changed[position % len(changed)] ^= 1 << bit
    return bytes(changed)


def _in_the_credential(one: Signed, position: int, bit: int) -> bytes:
    """Flip a bit inside the longest text of the body, which is where its signature is."""
    longest = max(one.request.body.split(b'"'), key=len)
    if b"clientState" in one.request.body:
        longest = one.secret
    return one.request.body.replace(longest, flipped(longest, position, bit), 1)


@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=lambda each: each.name)
def test_every_row_of_the_table_can_be_used(provider: Provider) -> None:
    assert problems(provider) == []
    assert PROVIDERS[provider.name] is provider


USABLE = Provider(name="some", schemes=(BARE,), event=(Header("x-event"),))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (replace(USABLE, name="Not A Name"), "is no name"),
        (replace(USABLE, event=()), "what the event is called"),
        (replace(USABLE, event=(Header("X-Event"),)), "no header name in lower case"),
        (replace(USABLE, keep=frozenset({"x-signature"})), "a credential may not be kept"),
        (replace(USABLE, keep=frozenset({"authorization"})), "a credential may not be kept"),
        (replace(USABLE, queued_status=302), "only be answered with success"),
        (replace(USABLE, budget=2.0), "a budget"),
        (replace(USABLE, schemes=()), "how the sender signs"),
        (replace(USABLE, schemes=(replace(BARE, sources=()),)), "where a signature is"),
        (replace(USABLE, schemes=(replace(BARE, message="{when}.{body}"),)), "a message is made"),
        (replace(USABLE, schemes=(replace(BARE, message="{id}.{body}"),)), "an id that is signed"),
        (replace(USABLE, schemes=(replace(BARE, message="{secret}{body}"),)), "a plain hash"),
        (replace(USABLE, schemes=(replace(BARE, encoding=Encoding.PLAIN),)), "is not encoded"),
        (
            replace(USABLE, schemes=(replace(BARE, stamp=Stamp(Header("x-time"))),)),
            "a time counts when it is signed",
        ),
        (
            replace(USABLE, schemes=(replace(BARE, kinds=(*BARE.kinds, *BARE.kinds)),)),
            "one prefix",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_row_that_cannot_be_used_is_told_apart(row: Provider, said: str) -> None:
    assert problems(USABLE) == []
    assert any(said in each for each in problems(row)), problems(row)


@pytest.mark.parametrize(
    ("provider", "generic", "field"),
    [
        ("github", Generic(), ""),
        ("generic_hmac", Generic(header="no header"), "header"),
        ("generic_hmac", Generic(algorithm="md5"), "algorithm"),
        ("generic_hmac", Generic(encoding="binary"), "encoding"),
        ("generic_hmac", Generic(prefix="a b"), "prefix"),
        ("generic_hmac", Generic(separator="|"), "separator"),
        ("generic_token", Generic(event="x" * 101), "event"),
    ],
)
def test_what_a_hook_says_of_its_sender_is_checked(
    provider: str, generic: Generic, field: str
) -> None:
    assert violations("generic_hmac", Generic(header="X-Sign", prefix="v1=", separator=",")) == []
    assert field in [name for name, _ in violations(provider, generic)]


def test_of_a_token_only_its_header_and_its_event_are_told() -> None:
    names = [field.name for field in fields(Generic)]
    nothing = ["algorithm", "encoding", "prefix", "separator"]

    assert [name for name, _ in misplaced("generic_token", names)] == nothing
    assert [name for name, _ in misplaced("generic_token", ["header", "encoding"])] == ["encoding"]
    assert misplaced("generic_token", ["header", "event"]) == []
    assert misplaced("generic_hmac", names) == []


def test_what_a_hook_does_not_say_stays_as_usual() -> None:
    row = PROVIDERS["generic_hmac"]
    longer = told(row, Generic(algorithm="sha512"))
    value = hmac.new(SECRET, BODY, "sha512").hexdigest().encode()

    assert told(row, None) is told(row, Generic(event="build")) is row
    request = Request([(b"x-signature", value)], BODY)
    assert state_of(longer, [SECRET], request) is SignatureState.VALID


def test_a_token_comes_in_the_header_that_the_hook_names() -> None:
    provider = told(PROVIDERS["generic_token"], Generic(header="X-Api-Key"))
    request = Request([(b"x-api-key", b"sesame")], b"")

    assert state_of(provider, [b"sesame"], request) is SignatureState.VALID
    assert state_of(provider, [b"simsim"], request) is SignatureState.INVALID
    assert Handshake("x", lambda _: Reply()).method == "POST"


@pytest.mark.parametrize(
    "written",
    [b"", b"+1", b"-1", b" 1", b"1 ", b"1.0", b"1e9", b"0x1", b"1_0", b"1" * 17, "\u0661".encode()],
)
@pytest.mark.parametrize("unit", list(Unit))
def test_a_time_is_digits_all_of_them(written: bytes, unit: Unit) -> None:
    assert seconds_of(written, unit) is None


@pytest.mark.parametrize(
    ("provider", "path"), [("adyen", "notificationItems"), ("msgraph", "value")]
)
def test_every_item_of_a_batch_is_vouched_for(provider: str, path: str) -> None:
    (one,) = samples(PROVIDERS[provider])
    document = json.loads(one.request.body)
    (item,) = document[path]
    two = replace(one.request, body=json.dumps({path: [item, item]}).encode())
    forged = json.loads(json.dumps(item).replace("AUTHORISATION", "\ud800"))
    if provider == "msgraph":
        forged["clientState"] = "\ud800"

    assert state_of(PROVIDERS[provider], [one.secret], two) is SignatureState.VALID
    for items in ([item, forged], [forged, item], [forged]):
        request = replace(one.request, body=json.dumps({path: items}).encode())
        assert state_of(PROVIDERS[provider], [one.secret], request) is SignatureState.INVALID


@pytest.mark.parametrize("key", [Key.BASE64, Key.SPKI, Key.WHSEC])
def test_a_key_is_read_as_people_copy_it(key: Key) -> None:
    written = base64.b64encode(b"a key of people's")

    assert written.endswith(b"=")
    for copied in (written, written.rstrip(b"="), written + b"\n", b" " + written):
        assert key_of(copied, key) == b"a key of people's"


@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=lambda each: each.name)
def test_a_credential_that_comes_twice_is_none(provider: Provider) -> None:
    for one in samples(provider):
        again = [each for each in one.request.headers if each[0].decode() == one.where]
        twice = replace(one.request, headers=[*one.request.headers, *again])
        # Those that stand in the body come once.
        expected = SignatureState.INVALID if again else SignatureState.VALID
        assert state_of(provider, [one.secret], twice) is expected


def test_an_amount_of_nothing_is_signed_as_it_is_written() -> None:
    item: dict[str, Any] = {"amount": {"value": 0, "currency": "EUR"}, "success": "true"}
    key = b"a key of Adyen's"
    signature = base64.b64encode(hmac.digest(key, b"::::0:EUR::true", "sha256")).decode()
    item["additionalData"] = {"hmacSignature": signature}
    body = json.dumps({"notificationItems": [{"NotificationRequestItem": item}]}).encode()

    state = state_of(PROVIDERS["adyen"], [key.hex().encode()], Request([], body))

    assert state is SignatureState.VALID


@pytest.mark.parametrize(
    ("head", "claims", "state"),
    [
        ({"alg": "HS256"}, {}, SignatureState.VALID),
        ({"alg": "HS256"}, {"exp": NOW - 299.5}, SignatureState.VALID),
        ({"alg": "HS256"}, {"exp": NOW - 300.5}, SignatureState.INVALID),
        # Signed as it should be, and said otherwise.
        ({"alg": "none"}, {}, SignatureState.INVALID),
        ({}, {}, SignatureState.INVALID),
        ({"alg": "HS256"}, [], SignatureState.INVALID),
    ],
)
def test_a_token_is_what_its_head_and_its_claims_say(
    head: object, claims: object, state: SignatureState
) -> None:
    text = b".".join(
        base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in (head, claims)
    )
    signature = base64.urlsafe_b64encode(hmac.digest(SECRET, text, "sha256")).rstrip(b"=")

    def state_with(value: bytes) -> SignatureState:
        request = Request([(b"authorization", value)], b"{}")
        return state_of(PROVIDERS["monday"], [SECRET], request)

    assert state_with(text + b"." + signature) is state
    assert state_with(b"Bearer " + text + b"." + signature) is state
    # The last letter holds more bits than are left, and only one spelling of them counts.
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    other = letters[letters.index(signature[-1:]) ^ 1]
    assert state_with(text + b"." + signature[:-1] + bytes([other])) is SignatureState.INVALID


def test_a_form_of_twilio_s_that_says_it_is_none_is_vouched_for_by_nothing() -> None:
    twilio = PROVIDERS["twilio"]
    (one,) = samples(twilio)
    others = [each for each in one.request.headers if each[0] != b"content-type"]
    headers = [*others, (b"content-type", b"application/json")]

    assert state_of(twilio, [one.secret], one.request) is SignatureState.VALID
    assert state_of(twilio, [one.secret], replace(one.request, headers=headers)) is (
        SignatureState.INVALID
    )


def test_a_token_with_an_end_is_refused_after_it() -> None:
    (one,) = samples(PROVIDERS["monday"])
    states = [
        verify(PROVIDERS["monday"], [one.secret], one.request, NOW + late).state
        for late in (360, 361)
    ]

    assert states == [SignatureState.VALID, SignatureState.INVALID]


def test_of_a_certificate_the_public_key_counts_and_not_the_certificate() -> None:
    row = PROVIDERS["aws_sns"]
    (one,) = samples(row)
    public = load_pem_public_key(one.secret)
    assert isinstance(public, RSAPublicKey)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sns.test")])
    begin = datetime.fromtimestamp(NOW, UTC)
    certificate = (
        x509.CertificateBuilder(name, name, public, 1, begin, begin + timedelta(days=1))
        .sign(Ed25519PrivateKey.generate(), None)
        .public_bytes(KeyEncoding.PEM)
    )
    der = public.public_bytes(KeyEncoding.DER, PublicFormat.SubjectPublicKeyInfo)

    assert state_of(row, [one.secret], one.request) is SignatureState.VALID
    assert state_of(row, [base64.b64encode(der)], one.request) is SignatureState.VALID
    assert state_of(row, [certificate], one.request) is SignatureState.INVALID
