"""Tokens: who may mint what, and what a verifier refuses."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from uuid import UUID

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from reveille_runtime.access import CallerKind, Role
from reveille_runtime.errors import Unauthenticated
from reveille_runtime.tokens import (
    KeyFileError,
    TokenMinter,
    TokenVerifier,
    TrustedKey,
    generate_key,
    load_trusted_keys,
    may_mint,
    save_trusted_keys,
    trusted_key_of,
)

NOW = 1_800_000_000.0
WORKSPACE = UUID(int=7)
RUN = UUID(int=8)


class Issuer:
    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name}.pem"
        self.key = generate_key(self.path, name)
        self.minter = TokenMinter(self.path, name)
        self.name = name

    def forge(self, **changes: object) -> str:
        claims: dict[str, object] = {
            "iss": self.name,
            "sub": "u-1",
            "kind": "user",
            "iat": int(NOW),
            "exp": int(NOW) + 60,
        }
        claims.update(changes)
        claims = {name: value for name, value in claims.items() if value is not None}
        private = load_pem_private_key(self.path.read_bytes(), None)
        assert isinstance(private, ed25519.Ed25519PrivateKey)
        return jwt.encode(claims, private, algorithm="EdDSA", headers={"kid": self.key.kid})


@pytest.fixture
def operator(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path, "operator")


@pytest.fixture
def heartbeat(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path, "heartbeat")


@pytest.fixture
def verifier(operator: Issuer, heartbeat: Issuer) -> TokenVerifier:
    return TokenVerifier([operator.key, heartbeat.key], leeway=30.0, cache_size=2)


def test_a_user_comes_out_as_minted(operator: Issuer, verifier: TokenVerifier) -> None:
    token = operator.minter.mint(
        CallerKind.USER, "u-1", roles={WORKSPACE: Role.ADMIN}, operator=True, now=NOW
    )

    actor = verifier.verify(token, now=NOW)

    assert (actor.kind, actor.subject, actor.issuer) == (CallerKind.USER, "u-1", "operator")
    assert actor.roles == {WORKSPACE: Role.ADMIN}
    assert actor.operator


def test_a_run_comes_out_as_minted(heartbeat: Issuer, verifier: TokenVerifier) -> None:
    token = heartbeat.minter.mint(
        CallerKind.RUN, str(RUN), workspace_id=WORKSPACE, run_id=RUN, now=NOW
    )

    actor = verifier.verify(token, now=NOW)

    assert (actor.kind, actor.workspace_id, actor.run_id) == (CallerKind.RUN, WORKSPACE, RUN)


@pytest.mark.parametrize(
    ("issuer", "kind", "subject", "allowed"),
    [
        ("operator", CallerKind.USER, "u-1", True),
        ("operator", CallerKind.SERVICE, "autopilot", True),
        ("operator", CallerKind.RUNTIME, "m-1", True),
        ("operator", CallerKind.RUN, "r-1", False),
        ("autopilot", CallerKind.SERVICE, "autopilot", True),
        ("autopilot", CallerKind.SERVICE, "heartbeat", False),
        ("autopilot", CallerKind.USER, "u-1", False),
        ("autopilot", CallerKind.RUN, "r-1", False),
        ("heartbeat", CallerKind.RUN, "r-1", True),
        ("heartbeat", CallerKind.USER, "u-1", False),
    ],
)
def test_what_an_issuer_may_mint(
    issuer: str, kind: CallerKind, subject: str, allowed: bool
) -> None:
    assert may_mint(issuer, kind, subject) is allowed


def test_the_minter_keeps_to_its_right(heartbeat: Issuer) -> None:
    with pytest.raises(ValueError, match="may not mint"):
        heartbeat.minter.mint(CallerKind.USER, "u-1")


def test_the_verifier_holds_an_issuer_to_its_right(
    heartbeat: Issuer, verifier: TokenVerifier
) -> None:
    assert refusal(verifier, heartbeat.forge()) == "TOKEN_INVALID"


def test_nobody_else_speaks_for_a_service_with_a_key(
    operator: Issuer, heartbeat: Issuer, verifier: TokenVerifier
) -> None:
    mine = heartbeat.minter.service_token(now=NOW)
    forged = operator.minter.mint(CallerKind.SERVICE, "heartbeat", now=NOW)
    other = operator.minter.mint(CallerKind.SERVICE, "billing", now=NOW)

    assert verifier.verify(mine, now=NOW).subject == "heartbeat"
    assert refusal(verifier, forged) == "TOKEN_INVALID"
    assert verifier.verify(other, now=NOW).subject == "billing"


def refusal(verifier: TokenVerifier, token: str, now: float = NOW) -> str:
    with pytest.raises(Unauthenticated) as refused:
        verifier.verify(token, now=now)
    return refused.value.reason


@pytest.mark.parametrize(
    "changes",
    [
        {"sub": None},
        {"exp": None},
        {"iat": None},
        {"iss": "heartbeat"},
        {"kind": "robot"},
        {"kind": None},
        {"exp": "soon"},
        {"roles": ["owner"]},
        {"roles": {"not-an-id": "owner"}},
        {"roles": {str(WORKSPACE): "emperor"}},
        {"operator": "yes"},
        {"workspace_id": "x"},
        {"iat": int(NOW) + 31},
    ],
)
def test_malformed_claims_are_refused(
    operator: Issuer, verifier: TokenVerifier, changes: dict[str, object]
) -> None:
    assert refusal(verifier, operator.forge(**changes)) == "TOKEN_INVALID"


def test_a_run_token_without_its_run_is_refused(heartbeat: Issuer, verifier: TokenVerifier) -> None:
    assert refusal(verifier, heartbeat.forge(kind="run", sub="r-1")) == "TOKEN_INVALID"


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "é.é.é", "x" * 20_000])
def test_garbage_is_refused(verifier: TokenVerifier, token: str) -> None:
    assert refusal(verifier, token) == "TOKEN_INVALID"


def test_an_unsigned_token_and_a_foreign_key_are_refused(
    tmp_path: Path, operator: Issuer, verifier: TokenVerifier
) -> None:
    claims = {"iss": "operator", "sub": "u", "kind": "user", "iat": int(NOW), "exp": int(NOW) + 9}
    unsigned = jwt.encode(claims, "", algorithm="none", headers={"kid": operator.key.kid})
    (tmp_path / "other").mkdir()
    foreign = Issuer(tmp_path / "other", "operator")

    assert refusal(verifier, unsigned) == "TOKEN_INVALID"
    assert refusal(verifier, foreign.forge()) == "TOKEN_INVALID"


def test_a_token_expires_after_the_leeway_also_out_of_the_cache(
    operator: Issuer, verifier: TokenVerifier
) -> None:
    token = operator.minter.mint(CallerKind.USER, "u-1", lifetime=60, now=NOW)

    verifier.verify(token, now=NOW)
    verifier.verify(token, now=NOW + 89)

    assert refusal(verifier, token, now=NOW + 90) == "TOKEN_EXPIRED"
    assert refusal(verifier, token, now=NOW + 90) == "TOKEN_EXPIRED"


def test_the_cache_is_bounded(operator: Issuer, verifier: TokenVerifier) -> None:
    for number in range(5):
        verifier.verify(operator.minter.mint(CallerKind.USER, f"u-{number}", now=NOW), now=NOW)

    assert len(verifier._cache) == 2


def test_the_service_token_is_renewed_at_half_of_its_life(heartbeat: Issuer) -> None:
    first = heartbeat.minter.service_token(now=NOW)

    assert heartbeat.minter.service_token(now=NOW + 1799) == first
    assert heartbeat.minter.service_token(now=NOW + 1800) != first


def test_a_clock_that_is_set_back_makes_a_new_service_token(
    heartbeat: Issuer, verifier: TokenVerifier
) -> None:
    heartbeat.minter.service_token(now=NOW + 3600)

    assert verifier.verify(heartbeat.minter.service_token(now=NOW), now=NOW).subject == "heartbeat"


def test_a_key_file_is_private_and_never_overwritten(tmp_path: Path, operator: Issuer) -> None:
    assert stat.S_IMODE(operator.path.stat().st_mode) == 0o600
    assert trusted_key_of(operator.path, "operator") == operator.key

    with pytest.raises(FileExistsError):
        generate_key(operator.path, "operator")


def test_trusted_keys_come_back_as_saved(tmp_path: Path, operator: Issuer) -> None:
    path = tmp_path / "trusted.json"

    save_trusted_keys(path, [operator.key])

    assert load_trusted_keys(path) == (operator.key,)
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"keys": [{"kid": "a"}]}',
        '{"keys": [{"kid": "a", "issuer": "b", "public_key": "AAAA"}]}',
    ],
)
def test_a_broken_trusted_keys_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trusted.json"
    path.write_text(text)

    with pytest.raises(KeyFileError, match=r"trusted\.json"):
        load_trusted_keys(path)


def test_a_private_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    for content in (
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        ),
        b"nonsense",
    ):
        path.write_bytes(content)
        with pytest.raises(KeyFileError, match=r"key\.pem"):
            TokenMinter(path, "operator")
    with pytest.raises(KeyFileError, match="cannot read"):
        TokenMinter(tmp_path / "absent.pem", "operator")


def test_the_file_format_is_documented_json(tmp_path: Path) -> None:
    path = tmp_path / "trusted.json"

    save_trusted_keys(path, [TrustedKey("k1", "autopilot", b"\x00" * 32)])

    assert json.loads(path.read_text()) == {
        "keys": [{"kid": "k1", "issuer": "autopilot", "public_key": "A" * 43 + "="}]
    }
