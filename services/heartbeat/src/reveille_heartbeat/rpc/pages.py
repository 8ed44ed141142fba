"""Pages of messages: as many as were asked for, and as one answer holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import UUID

from google.protobuf.message import Message

from reveille_heartbeat.usecases.listing import Listed
from reveille_runtime.paging import fitting, page_token

Row = TypeVar("Row")
Shown = TypeVar("Shown", bound=Message)


def page_of(
    listed: Listed[Row],
    show: Callable[[Row], Shown],
    key: Callable[[Row], UUID | str],
    query: Sequence[object],
) -> tuple[list[Shown], str]:
    """Show rows, and give the token of what follows them; `key` is what their list goes by."""
    messages = [show(each) for each in listed.rows]
    count = fitting(each.ByteSize() for each in messages)
    more = listed.more or count < len(messages)
    token = page_token([key(listed.rows[count - 1])], query) if more else ""
    return messages[:count], token
