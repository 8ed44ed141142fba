"""Sealing: opens only in its place, with a key of the file; no error shows a key."""

from __future__ import annotations

from pathlib import Path

import pytest

from reveille_runtime.crypto import KeyFileError, SealBroken, Sealer, generate_key


def key_file(tmp_path: Path, *keys: str, name: str = "keys") -> Path:
    file = tmp_path / name
    file.write_text("\n".join(keys) + "\n")
    return file


@pytest.fixture
def sealer(tmp_path: Path) -> Sealer:
    return Sealer(key_file(tmp_path, generate_key()))


@pytest.mark.parametrize("plaintext", [b"", b"whsec_1", b"\x00" * 5000])
def test_what_was_sealed_opens_in_its_place(sealer: Sealer, plaintext: bytes) -> None:
    sealed = sealer.seal(plaintext, b"table/row")
    assert plaintext == b"" or plaintext not in sealed
    assert sealer.open(sealed, b"table/row") == plaintext


def test_the_same_text_never_looks_the_same(sealer: Sealer) -> None:
    assert sealer.seal(b"x", b"place") != sealer.seal(b"x", b"place")


def test_another_place_does_not_open_it(sealer: Sealer) -> None:
    with pytest.raises(SealBroken):
        sealer.open(sealer.seal(b"x", b"row 1"), b"row 2")


def test_every_changed_or_missing_byte_is_noticed(sealer: Sealer) -> None:
    sealed = sealer.seal(b"secret", b"place")
    for index in range(len(sealed)):
        broken = bytearray(sealed)
        broken[index] ^= 1
        with pytest.raises(SealBroken):
            sealer.open(bytes(broken), b"place")
        with pytest.raises(SealBroken):
            sealer.open(sealed[:index], b"place")


def test_keys_rotate_by_a_new_first_line(tmp_path: Path) -> None:
    old_key, new_key = generate_key(), generate_key()
    old = Sealer(key_file(tmp_path, old_key, name="old"))
    both = Sealer(key_file(tmp_path, new_key, old_key, name="both"))
    new = Sealer(key_file(tmp_path, new_key, name="new"))

    assert both.open(old.seal(b"x", b"p"), b"p") == b"x"
    assert new.open(both.seal(b"y", b"p"), b"p") == b"y"
    with pytest.raises(SealBroken, match="not in the key file"):
        new.open(old.seal(b"x", b"p"), b"p")


@pytest.mark.parametrize(
    "text", ["", "\n", "c2hvcnQ=", "no!base64!", "A" * 43 + "=\nc2hvcnQ=", "ü"]
)
def test_an_unusable_key_file_is_named_but_not_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(KeyFileError) as refused:
        Sealer(file)
    assert str(file) in str(refused.value)
    assert not any(line in str(refused.value) for line in text.split())


def test_a_missing_key_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="FileNotFoundError"):
        Sealer(tmp_path / "none")


def test_a_mark_tells_equal_secrets_of_one_place_and_needs_the_key(tmp_path: Path) -> None:
    key = generate_key()
    sealer = Sealer(key_file(tmp_path, key))
    mark = sealer.mark(b"secret", b"place")

    assert Sealer(key_file(tmp_path, key, name="again")).mark(b"secret", b"place") == mark
    assert sealer.mark(b"secret", b"elsewhere") != mark
    assert sealer.mark(b"ecret", b"places") != sealer.mark(b"secret", b"place")
    assert (
        Sealer(key_file(tmp_path, generate_key(), name="other")).mark(b"secret", b"place") != mark
    )
