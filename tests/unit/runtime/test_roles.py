"""The password verifier: what PostgreSQL itself would have stored."""

from __future__ import annotations

import base64

from reveille_runtime.roles import scram_verifier


def test_the_verifier_is_the_servers_own() -> None:
    # RFC 7677, section 3: user "user", password "pencil".
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")

    assert scram_verifier("pencil", salt) == (
        "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$"
        "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
        ":wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    )


def test_a_salt_is_used_once() -> None:
    assert scram_verifier("pencil") != scram_verifier("pencil")
