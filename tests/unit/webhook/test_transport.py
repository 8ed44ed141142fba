"""One write for each answer, and nothing that is waited for is kept back."""

from __future__ import annotations

import asyncio
from typing import cast

from reveille_webhook.http.transport import WholeAnswers

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class Wire:
    """What came out, write by write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def write_eof(self) -> None:
        self.writes.append(b"EOF")

    def close(self) -> None:
        self.writes.append(b"CLOSED")

    def is_closing(self) -> bool:
        return b"CLOSED" in self.writes

    def get_extra_info(self, name: str) -> str:
        return name


def answers() -> tuple[Wire, WholeAnswers]:
    wire = Wire()
    return wire, WholeAnswers(cast("asyncio.Transport", wire))


def test_a_head_goes_out_with_its_body() -> None:
    wire, transport = answers()
    transport.write(HEAD)
    assert wire.writes == []
    transport.write(b"{}")
    transport.write(HEAD)
    transport.write(b"")
    transport.write(b"more")
    assert wire.writes == [HEAD + b"{}", HEAD, b"more"]


def test_an_interim_answer_waits_for_nothing() -> None:
    wire, transport = answers()
    transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert wire.writes == [b"HTTP/1.1 100 Continue\r\n\r\n"]


def test_no_head_is_kept_back_at_an_end() -> None:
    for end, said in (("flush", []), ("write_eof", [b"EOF"]), ("close", [b"CLOSED"])):
        wire, transport = answers()
        transport.write(HEAD)
        getattr(transport, end)()
        assert wire.writes == [HEAD, *said]
        transport.flush()
        assert wire.writes == [HEAD, *said]


def test_what_it_does_not_change_is_the_transports() -> None:
    wire, transport = answers()
    assert transport.get_extra_info("peername") == "peername"
    assert not transport.is_closing()
    wire.close()
    assert transport.is_closing()
