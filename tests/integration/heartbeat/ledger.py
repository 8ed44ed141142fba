"""Agents that write down what they do, and what must be true of them whatever has happened."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
from tests.integration.heartbeat.kit import World

from reveille.heartbeat.v1 import agent_pb2
from reveille_heartbeat.adapters.process.tree import marked_runs
from reveille_testkit.waiting import eventually

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

# A line per start and per end in a file of the run's; whoever meets a living process of the same
# agent, which has one slot only, says so.
_AGENT = """
folder=$1 holder=$1/holder-$2 kind=$3 seconds=$4
look() {
    [ -r "/proc/$1/stat" ] && IFS= read -r stat <"/proc/$1/stat" && set -- ${stat##*) } &&
        state=$1 since=${20}
}
echo start >>"$folder/runs/$REVEILLE_RUN_ID"
# Pids are used again, by threads as well: a holder is known by when it began, too.
if [ -s "$holder" ] && read -r pid run began <"$holder" && look "$pid" && [ "$since" = "$began" ]
then
    # One that has ended may wait for somebody to take note of it.
    case $state in
        Z | X) ;;
        *) echo "$REVEILLE_RUN_ID met $run" >>"$folder/violations" ;;
    esac
fi
look $$
echo "$$ $REVEILLE_RUN_ID $since" >"$holder"
echo "$REVEILLE_RUN_ID"
case $kind in
    work) sleep "$seconds" ;;
    leaver) setsid sleep 600 & sleep "$seconds" ;;
    failing) echo "it cannot work" >&2; rm "$holder"; exit 3 ;;
    stubborn) trap '' TERM; while :; do sleep 1; done ;;
esac
rm "$holder"
echo end >>"$folder/runs/$REVEILLE_RUN_ID"
"""


class Ledger:
    """What the agents of one test have written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "runs").mkdir(parents=True)

    async def agent(
        self, world: World, name: str, kind: str, seconds: float = 0.1, **more: Any
    ) -> agent_pb2.Agent:
        """Make an agent of a kind: work, leaver, failing, stubborn."""
        command = ["sh", "-c", _AGENT, name, str(self.folder), name, kind, str(seconds)]
        return await world.agent(
            name, "process", {"command": command}, max_concurrent_runs=1, **more
        )

    def starts(self) -> Counter[UUID]:
        """Count how often the agent of each run was started."""
        return Counter(
            {
                UUID(file.name): file.read_text(encoding="ascii").split().count("start")
                for file in (self.folder / "runs").iterdir()
            }
        )

    @property
    def violations(self) -> list[str]:
        """Agents that met a living one in their slot."""
        path = self.folder / "violations"
        return path.read_text(encoding="ascii").splitlines() if path.exists() else []

    async def judge(self, rows: Rows, *, sweep: timedelta, patience: float) -> list[asyncpg.Record]:
        """Wait until everything is over, and hold it against the rules; give the runs."""

        async def unsettled() -> int:
            count: int = await rows.fetchval(
                "SELECT (SELECT count(*) FROM wakeup_requests WHERE finished_at IS NULL)"
                " + (SELECT count(*) FROM runs WHERE follow_up_done_at IS NULL)"
            )
            return count

        await eventually(
            unsettled, "every wake is settled", until=lambda count: count == 0, timeout=patience
        )
        runs = await rows.fetch(
            "SELECT run_id, wakeup_id, agent_id, issue_id, state, attempt, retry_of_run_id,"
            " retry_reason, reason, message, started_at, deadline_at, finished_at,"
            " follow_up_done_at FROM runs ORDER BY started_at, run_id"
        )
        known = {run["run_id"] for run in runs}

        async def processes() -> set[UUID]:
            return known & marked_runs().keys()

        await eventually(processes, "no process is left", until=lambda left: not left)
        self._judge_agents(known)
        _judge_attempts(runs, sweep)
        unexplained = await rows.fetch(
            "SELECT wakeup_id, state FROM wakeup_requests"
            " WHERE state <> 'completed' AND (reason = '' OR message = '')"
        )
        assert unexplained == []
        await _judge_logs(rows, runs)
        return runs

    def _judge_agents(self, known: set[UUID]) -> None:
        starts = self.starts()
        assert [run_id for run_id, count in starts.items() if count > 1] == []
        assert starts.keys() <= known
        assert self.violations == []


def _judge_attempts(runs: list[asyncpg.Record], sweep: timedelta) -> None:
    by_wakeup, by_agent = defaultdict(list), defaultdict(list)
    for run in runs:
        by_wakeup[run["wakeup_id"]].append(run)
        if run["started_at"] is not None:
            by_agent[run["agent_id"]].append(run)
        if run["deadline_at"] is not None:
            assert run["finished_at"] <= run["deadline_at"] + sweep, run
        assert run["state"] == "succeeded" or (run["reason"] and run["message"]), run
    for attempts in by_wakeup.values():
        ordered = sorted(attempts, key=lambda run: run["attempt"])
        assert [run["attempt"] for run in ordered] == list(range(1, len(ordered) + 1))
        for before, after in itertools.pairwise(ordered):
            assert after["retry_of_run_id"] == before["run_id"]
            assert after["retry_reason"] != ""
    # One slot each: the next begins when the one before has given everything back.
    for one_by_one in by_agent.values():
        for before, after in itertools.pairwise(one_by_one):
            assert before["follow_up_done_at"] <= after["started_at"], (before, after)


async def _judge_logs(rows: Rows, runs: list[asyncpg.Record]) -> None:
    """Of a run that succeeded every byte is stored, once."""
    said: dict[UUID, bytes] = defaultdict(bytes)
    for chunk in await rows.fetch(
        "SELECT run_id, data FROM run_log_chunks WHERE stream = 'stdout'"
        " ORDER BY run_id, start_offset"
    ):
        said[chunk["run_id"]] += chunk["data"]
    for run in runs:
        if run["state"] == "succeeded":
            assert said[run["run_id"]] == f"{run['run_id']}\n".encode()
