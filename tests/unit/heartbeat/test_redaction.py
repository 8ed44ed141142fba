"""Secrets never reach the stored log, however the output is cut into pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reveille_heartbeat.domain.redaction import Redactor, masked_config, secrets_of


def through(redactor: Redactor, pieces: list[bytes]) -> bytes:
    """Pass pieces on as a tail does: what is held back is read again with the next piece."""
    out, held = b"", b""
    for piece in pieces:
        data = held + piece
        kept = redactor.safe_length(data)
        out += redactor.redact(data[:kept])
        held = data[kept:]
    return out + redactor.redact(held)


@given(
    st.lists(st.sampled_from(["abcdefg", "abcdefgh", "xyzxyzq", "aaaaaaab"]), min_size=1),
    st.lists(st.binary(max_size=6) | st.sampled_from([b"abc", b"defg", b"aaaa", b"xyz", b"q"])),
)
def test_no_secret_is_left_and_no_byte_is_lost(secrets: list[str], pieces: list[bytes]) -> None:
    redactor = Redactor(secrets)
    stored = through(redactor, pieces)

    assert len(stored) == sum(map(len, pieces))
    assert not any(secret.encode() in stored for secret in secrets)
    whole = b"".join(pieces)
    assert stored == whole or any(secret.encode() in whole for secret in secrets)


def test_the_end_of_a_stream_shows_no_rest_of_a_secret() -> None:
    redactor = Redactor(["hush-hush"])

    assert redactor.redact_end(b"say hush-hush!", whole=True) == b"say *********!"
    # The first bytes may be the rest of a secret whose beginning was not read.
    assert redactor.redact_end(b"sh-hush\nsay hush-hush!", whole=False) == b"say *********!"
    assert Redactor([]).redact_end(b"line", whole=False) == b"line"


def test_a_longer_secret_goes_before_the_one_it_begins_with() -> None:
    assert Redactor(["abcdef", "abcdefgh"]).redact(b"abcdefgh!") == b"********!"


def test_short_values_are_no_secrets() -> None:
    assert Redactor(["abc"]).redact(b"abc") == b"abc"


def test_names_tell_what_is_secret() -> None:
    env = {"API_TOKEN": "hush-hush", "PASSWORD": "12345", "COLOUR": "blue", "apikey": "longer-key"}

    assert secrets_of(env) == ["hush-hush", "longer-key"]
    assert masked_config({"command": ["x"], "env": env}) == {
        "command": ["x"],
        "env": {"API_TOKEN": "*" * 8, "PASSWORD": "*" * 8, "COLOUR": "blue", "apikey": "*" * 8},
    }
