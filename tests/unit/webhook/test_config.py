"""The gateway's settings: what its hooks' addresses begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from reveille_runtime.config import load_settings
from reveille_webhook.config import Settings


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "key"
    key.write_text("{}")
    monkeypatch.setenv("REVEILLE_DATABASE_URL", "postgresql://app@127.0.0.1:5432/reveille")
    for name in ("TRUSTED_KEYS_FILE", "SERVICE_KEY_FILE", "SEALING_KEY_FILE"):
        monkeypatch.setenv(f"REVEILLE_{name}", str(key))


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("https://hooks.example.com", "https://hooks.example.com"),
        ("https://hooks.example.com/", "https://hooks.example.com"),
        ("http://127.0.0.1:8080/relay/", "http://127.0.0.1:8080/relay"),
    ],
)
def test_a_slash_at_the_end_of_the_public_address_says_nothing(
    written: str, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVEILLE_PUBLIC_URL", written)

    assert load_settings(Settings, []).public_url == read


@pytest.mark.parametrize(
    "written",
    ["hooks.example.com", "https://", "ftp://hooks.example.com", "https://hooks.example.com/?a=b"],
)
def test_what_no_address_can_begin_with_is_refused(
    written: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REVEILLE_PUBLIC_URL", written)

    with pytest.raises(SystemExit):
        load_settings(Settings, [])

    assert "REVEILLE_PUBLIC_URL: must " in capsys.readouterr().err
