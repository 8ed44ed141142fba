"""How an attempt ended, told by what its wrapper and its agent have left."""

from __future__ import annotations

import asyncio
from typing import Any

from reveille_heartbeat.adapters.contract import AdapterResult, AgentContext
from reveille_heartbeat.adapters.left_files import Unreadable
from reveille_heartbeat.domain.answer import BadAnswer, read_document
from reveille_heartbeat.domain.outcome import End, EndKind, last_line, span_text
from reveille_heartbeat.domain.redaction import Redactor
from reveille_heartbeat.domain.values import LogStream

# Seconds before a process that is gone without a word counts as lost.
SETTLE_DELAY = 0.5
# What a shell reports when a file grew past its limit: 128 + SIGXFSZ.
_FILE_TOO_LARGE = 153
# Bytes at the end of stderr in which its last line is looked for.
_LAST_WORDS = 16_384
# Bytes of a result file that is worth a thread of its own.
_LARGE = 65_536
_NEVER_STARTED = "its executor ended before the agent was started"
# With which a wrapper exits that could not write down who it is, before it starts anything.
_NOTHING_STARTED = 125
_NO_IDENTITY = (
    "its supervisor could not write to the spool, and started nothing: perhaps the disk is full"
)
_NO_STATUS = (
    "its supervisor could not write to the spool how the agent ended: perhaps the disk is full, or"
    " the agent has removed its folder"
)
_GROUP_ENDED = (
    "its supervisor was killed while this executor looked on: the agent, or somebody on this"
    " machine, has ended the whole process group, and nothing tells how the agent itself ended"
)


async def result_of(
    context: AgentContext, *, watched: bool, over_limit: bool, wrapper: int | None = None
) -> AdapterResult:
    """Say how it ended; `watched`: this executor saw the wrapper live, and end, with a status.

    That status is the wrapper's own, and no agent's: `wrapper` is None where it was killed.
    """
    answer, problem = await _answer(context)
    return AdapterResult(_end_of(context, watched, over_limit, wrapper), answer, problem)


def _end_of(context: AgentContext, watched: bool, over_limit: bool, wrapper: int | None) -> End:
    spool, limits = context.spool, context.limits
    if wrapper == _NOTHING_STARTED:
        return End(EndKind.NO_ROOM, message=_NO_IDENTITY)
    code = spool.exit_code()
    largest = max((spool.output_size(stream) for stream in LogStream), default=0)
    if over_limit or (code is not None and largest >= limits.file_bytes):
        limit = min(limits.output_bytes, limits.file_bytes)
        return End(EndKind.TOO_MUCH_OUTPUT, code, f"it wrote more than {limit} bytes of output")
    if spool.ran_out:
        longest = span_text(context.agent.run_timeout)
        return End(EndKind.RAN_OUT, code, f"it ran longer than its limit of {longest}")
    if code == _FILE_TOO_LARGE:
        message = f"it wrote a file larger than {limits.file_bytes} bytes"
        return End(EndKind.TOO_MUCH_OUTPUT, code, message)
    if code is not None:
        return End(EndKind.EXITED, code, _last_words(context) if code != 0 else "")
    if spool.unstarted or (context.resumed and context.run.process is None):
        # The word to start comes after the record of the process.
        return End(EndKind.LOST, message=_NEVER_STARTED)
    if watched:
        if wrapper == 0:
            return End(EndKind.BROKEN, message=_NO_STATUS)
        # No host was lost, so another attempt would end like this one.
        return End(EndKind.BROKEN, message=_GROUP_ENDED)
    return End(EndKind.LOST)


def _last_words(context: AgentContext) -> str:
    """Give the last line on stderr, where programs say why they fail.

    It is cut, so no secret can be left to whoever sees only what the cut has left of one.
    """
    data, whole = context.spool.end_of(LogStream.STDERR, _LAST_WORDS)
    return last_line(Redactor(context.secrets).redact_end(data, whole=whole))


async def _answer(context: AgentContext) -> tuple[dict[str, Any] | None, str]:
    try:
        content = context.spool.read_result()
        if content is None:
            return None, ""
        if len(content) > _LARGE:
            return await asyncio.to_thread(read_document, content), ""
        return read_document(content), ""
    except (BadAnswer, Unreadable) as error:
        return None, str(error)
