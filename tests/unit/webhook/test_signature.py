"""Verification: every known answer, and an answer for whatever is given."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reveille_webhook.domain.request import Headers
from reveille_webhook.domain.scheme import problems
from reveille_webhook.domain.signature import verify
from reveille_webhook.domain.states import SignatureState
from reveille_webhook.providers.table import PROVIDERS

LINES = (Path(__file__).parents[2] / "data/signatures/github.jsonl").read_text("utf-8")
VECTORS: list[dict[str, Any]] = [json.loads(line) for line in LINES.splitlines()]
GITHUB = PROVIDERS["github"].signature
SECRET, BODY = b"It's a Secret to Everybody", b"Hello, World!"
VALID = b"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"


def signed(*values: bytes) -> Headers:
    return [(b"x-hub-signature-256", value) for value in values]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_known_answers(vector: dict[str, Any]) -> None:
    body = base64.b64decode(vector["body_b64"]) if "body_b64" in vector else vector["body"].encode()
    headers = [(name.lower().encode(), value.encode()) for name, value in vector["headers"].items()]

    state, _ = verify(GITHUB, [vector["secret"].encode()], headers, body)

    assert (state is SignatureState.VALID) == vector["valid"]


def test_upper_case_hex_counts_and_an_upper_case_prefix_does_not() -> None:
    digits = VALID.removeprefix(b"sha256=").upper()

    assert verify(GITHUB, [SECRET], signed(b"sha256=" + digits), BODY)[0] is SignatureState.VALID
    assert verify(GITHUB, [SECRET], signed(b"SHA256=" + digits), BODY)[0] is SignatureState.INVALID


def test_any_of_several_secrets_matches_and_is_told() -> None:
    assert verify(GITHUB, [b"another", SECRET], signed(VALID), BODY) == (SignatureState.VALID, 1)


@pytest.mark.parametrize("values", [(), (b"",)])
def test_nothing_is_missing(values: tuple[bytes, ...]) -> None:
    assert verify(GITHUB, [SECRET], signed(*values), BODY) == (SignatureState.MISSING, None)


@pytest.mark.parametrize(
    "values",
    [
        (VALID, VALID),
        (VALID + b"00",),
        (VALID[:-2],),
        (VALID.replace(b"75", b"7 5", 1),),
        (b"sha256=",),
        (b"sha256=" + b"\xff" * 64,),
    ],
    ids=["twice", "long", "short", "spaces", "empty", "bytes"],
)
def test_whatever_is_not_the_signature_is_invalid(values: tuple[bytes, ...]) -> None:
    assert verify(GITHUB, [SECRET], signed(*values), BODY) == (SignatureState.INVALID, None)


@pytest.mark.parametrize("secrets", [[], [b""]])
def test_without_a_usable_secret_nothing_passes(secrets: list[bytes]) -> None:
    empty_key = b"sha256=" + b"bc3ce6d4a9d2f1d7cf4ea4dbd6d4df06e03b96cb9d9ac2dc2e70b95c4d3f9c0c"

    assert verify(GITHUB, secrets, signed(VALID), BODY)[0] is SignatureState.INVALID
    assert verify(GITHUB, secrets, signed(empty_key), b"")[0] is SignatureState.INVALID


@given(value=st.binary(max_size=100), body=st.binary(max_size=50), secret=st.binary(max_size=80))
def test_it_never_raises(value: bytes, body: bytes, secret: bytes) -> None:
    state, _ = verify(GITHUB, [secret], signed(value), body)

    assert state in {SignatureState.INVALID, SignatureState.MISSING}


@pytest.mark.parametrize("provider", sorted(PROVIDERS))
@given(position=st.integers(min_value=0), bit=st.integers(min_value=0, max_value=7))
def test_one_bit_of_the_body_or_the_credential_decides(
    provider: str, position: int, bit: int
) -> None:
    scheme = PROVIDERS[provider].signature
    body = bytearray(BODY)
    body[position % len(body)] ^= 1 << bit
    secret = bytearray(SECRET)
    secret[position % len(secret)] ^= 1 << bit

    assert verify(scheme, [SECRET], signed(VALID), BODY)[0] is SignatureState.VALID
    assert verify(scheme, [SECRET], signed(VALID), bytes(body))[0] is SignatureState.INVALID
    assert verify(scheme, [bytes(secret)], signed(VALID), BODY)[0] is SignatureState.INVALID


@pytest.mark.parametrize("provider", sorted(PROVIDERS))
def test_every_row_of_the_table_can_be_used(provider: str) -> None:
    assert problems(PROVIDERS[provider]) == []
    assert PROVIDERS[provider].name == provider


def test_an_empty_secret_passes_nothing_not_even_what_it_signs() -> None:
    by_nothing = b"sha256=" + hmac.new(b"", BODY, hashlib.sha256).hexdigest().encode()

    assert verify(GITHUB, [b""], signed(by_nothing), BODY) == (SignatureState.INVALID, None)
    assert verify(GITHUB, [b"", SECRET], signed(VALID), BODY) == (SignatureState.VALID, 1)
