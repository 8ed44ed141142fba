"""Three engines over the same few issues: the short twin of the soak in `tests/crash`."""

from __future__ import annotations

import random

from tests.integration.heartbeat.conftest import Stage
from tests.integration.heartbeat.contention import JOURNAL, Ledger, Load, Size

SIZE = Size(workspaces=2, agents=10, issues=6, wakeups=120, callers=6)


async def test_three_engines_keep_every_promise(stage: Stage) -> None:
    await stage.database.ddl("heartbeat", JOURNAL)
    engines = [await stage.start() for _ in range(3)]
    load = Load([each.client for each in engines], random.Random(7), SIZE)
    await load.prepare()
    await load.run()
    ledger = Ledger(await stage.database.connect("admin"))
    await ledger.at_rest(60)
    ends = await ledger.check(SIZE.wakeups)
    assert ends["completed"] > 0
    assert ends["cancelled"] > 0
