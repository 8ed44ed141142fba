"""The batcher: group commit without a timer, and an answer for every caller."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest
import uvloop

from reveille_runtime.batcher import Batcher
from reveille_runtime.errors import ResourceExhausted, Unavailable

Item = tuple[str, int]


class Gate:
    """A batch function that records each batch and lets the test decide when it returns."""

    def __init__(self) -> None:
        self.batches: list[list[Item]] = []
        self.waiting: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()

    async def __call__(self, items: Sequence[Item]) -> list[str]:
        self.batches.append(list(items))
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.put_nowait(opened)
        await opened
        return [f"{key}={value}" for key, value in items]

    async def open_one(self) -> None:
        (await self.waiting.get()).set_result(None)

    async def open_all(self, tasks: Sequence[asyncio.Future[str]]) -> list[str | BaseException]:
        gathered = asyncio.gather(*tasks, return_exceptions=True)

        async def opener() -> None:
            while True:
                await self.open_one()

        helper = asyncio.ensure_future(opener())
        try:
            return await gathered
        finally:
            helper.cancel()


def submit_all(
    batcher: Batcher[Item, str], items: Sequence[Item], timeout: float | None = None
) -> list[asyncio.Task[str]]:
    return [asyncio.create_task(batcher.submit(item, timeout)) for item in items]


def items(count: int, start: int = 0) -> list[Item]:
    return [(f"k{number:05}", number) for number in range(start, start + count)]


async def settle() -> None:
    """Let everything that is ready to run have its turn."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_an_idle_batcher_sends_at_once_and_the_next_batch_fills_meanwhile() -> None:
    gate = Gate()
    batcher: Batcher[Item, str] = Batcher("b", gate, max_in_flight=1)
    first = submit_all(batcher, items(1))
    await settle()
    rest = submit_all(batcher, items(5, start=1))
    await settle()

    assert gate.batches == [items(1)]
    assert batcher.queued == 5

    answers = await gate.open_all([*first, *rest])
    assert answers == [f"k{n:05}={n}" for n in range(6)]
    assert gate.batches == [items(1), items(5, start=1)]


async def test_callers_of_one_turn_share_a_batch() -> None:
    gate = Gate()
    batcher: Batcher[Item, str] = Batcher("b", gate)
    await gate.open_all(submit_all(batcher, items(7)))

    assert gate.batches == [items(7)]


async def test_batches_are_bounded_in_items_bytes_and_number() -> None:
    gate = Gate()
    batcher: Batcher[Item, str] = Batcher(
        "b", gate, max_items=3, max_bytes=100, max_in_flight=2, size=lambda item: item[1]
    )
    tasks = submit_all(batcher, [("a", 60), ("b", 60), ("c", 500), ("d", 1), ("e", 1), ("f", 1)])
    await settle()
    assert gate.batches == [[("a", 60)], [("b", 60)]]
    assert batcher.in_flight == 2

    await gate.open_all(tasks)
    # The item above the limit travels alone instead of never.
    assert gate.batches[2:] == [[("c", 500)], [("d", 1), ("e", 1), ("f", 1)]]


async def test_items_are_sorted_by_conflict_key() -> None:
    gate = Gate()
    batcher: Batcher[Item, str] = Batcher("b", gate, key=lambda item: item[0])
    answers = await gate.open_all(submit_all(batcher, [("c", 1), ("a", 2), ("b", 3)]))

    assert gate.batches == [[("a", 2), ("b", 3), ("c", 1)]]
    assert answers == ["c=1", "a=2", "b=3"]


async def test_equal_keys_never_run_together_and_all_are_answered() -> None:
    gate = Gate()
    batcher: Batcher[Item, str] = Batcher("b", gate, key=lambda item: item[0], max_in_flight=4)
    tasks = submit_all(batcher, [("a", 1), ("a", 2), ("b", 3), ("a", 4)])
    await settle()
    assert gate.batches == [[("a", 1), ("b", 3)]]

    answers = await gate.open_all(tasks)
    assert answers == ["a=1", "a=2", "b=3", "a=4"]
    assert gate.batches == [[("a", 1), ("b", 3)], [("a", 2)], [("a", 4)]]


async def test_a_follower_goes_before_those_that_came_after_it() -> None:
    gate = Gate()
    batcher: Batcher[Item, str] = Batcher(
        "b", gate, key=lambda item: item[0], max_in_flight=1, max_items=1
    )
    tasks = submit_all(batcher, [("a", 1), ("a", 2), ("b", 3)])
    await gate.open_all(tasks)

    assert gate.batches == [[("a", 1)], [("a", 2)], [("b", 3)]]


async def test_a_cancelled_follower_or_leader_does_not_stop_its_key() -> None:
    gate = Gate()
    batcher: Batcher[Item, str] = Batcher("b", gate, key=lambda item: item[0], max_in_flight=1)
    blocker = submit_all(batcher, [("z", 0)])
    await settle()
    queued = submit_all(batcher, [("a", 1), ("a", 2), ("a", 3)])
    await settle()
    queued[0].cancel()
    queued[1].cancel()
    await settle()

    assert batcher.queued == 1
    answers = await gate.open_all([*blocker, queued[2]])
    assert answers == ["z=0", "a=3"]
    assert gate.batches == [[("z", 0)], [("a", 3)]]
    assert batcher.queued == 0


async def test_a_cancelled_caller_does_not_poison_its_batch() -> None:
    gate = Gate()
    batcher: Batcher[Item, str] = Batcher("b", gate)
    tasks = submit_all(batcher, items(3))
    await settle()
    tasks[1].cancel()
    answers = await gate.open_all(tasks)

    assert answers[0] == "k00000=0"
    assert isinstance(answers[1], asyncio.CancelledError)
    assert answers[2] == "k00002=2"


async def test_a_full_queue_refuses_and_does_nothing() -> None:
    gate = Gate()
    batcher: Batcher[Item, str] = Batcher("b", gate, max_in_flight=1, max_queue=2)
    tasks = submit_all(batcher, items(1))
    await settle()
    tasks += submit_all(batcher, items(2, start=1))
    await settle()
    with pytest.raises(ResourceExhausted) as refused:
        await batcher.submit(("over", 9))
    assert refused.value.reason == "OVERLOADED"
    assert refused.value.retry_after == 1.0

    await gate.open_all(tasks)
    assert ("over", 9) not in [item for batch in gate.batches for item in batch]


async def test_an_item_whose_time_is_up_while_queued_never_runs() -> None:
    gate = Gate()
    batcher: Batcher[Item, str] = Batcher("b", gate, max_in_flight=1)
    first = submit_all(batcher, items(1))
    await settle()
    with pytest.raises(TimeoutError):
        await batcher.submit(("late", 1), timeout=0.01)
    assert batcher.queued == 0

    await gate.open_all(first)
    await batcher.close()
    assert gate.batches == [items(1)]


async def test_a_bad_item_is_bisected_and_only_its_caller_sees_the_error() -> None:
    seen: list[int] = []

    async def run(batch: Sequence[Item]) -> list[str]:
        seen.append(len(batch))
        if any(value == 13 for _, value in batch):
            raise asyncpg.CharacterNotInRepertoireError("bad item")
        return [key for key, _ in batch]

    batcher: Batcher[Item, str] = Batcher("b", run)
    answers = await asyncio.gather(*submit_all(batcher, items(100)), return_exceptions=True)

    assert isinstance(answers[13], asyncpg.CharacterNotInRepertoireError)
    assert [a for n, a in enumerate(answers) if n != 13] == [k for k, n in items(100) if n != 13]
    assert len(seen) <= 2 * 7 + 1


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.SerializationError("40001"),
        asyncpg.DeadlockDetectedError("40P01"),
        asyncpg.ConnectionDoesNotExistError("08003"),
        asyncpg.AdminShutdownError("57P01"),
        ConnectionResetError("gone"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_unknown_commit_repeats_the_whole_batch(error: Exception) -> None:
    stored: dict[str, int] = {}
    batches: list[list[Item]] = []

    async def run(batch: Sequence[Item]) -> list[str]:
        batches.append(list(batch))
        # The caller made the ids, so writing twice is the same as once.
        stored.update(batch)
        if len(batches) == 1:
            raise error
        return [key for key, _ in batch]

    batcher: Batcher[Item, str] = Batcher("b", run)
    answers = await asyncio.gather(*submit_all(batcher, items(3)))

    assert answers == ["k00000", "k00001", "k00002"]
    assert batches == [items(3), items(3)]
    assert len(stored) == 3


async def test_repeats_end_with_the_patience_of_the_callers() -> None:
    async def run(batch: Sequence[Item]) -> list[str]:
        raise ConnectionRefusedError("down")

    batcher: Batcher[Item, str] = Batcher("b", run, retry_for=0.05)
    with pytest.raises(ConnectionRefusedError):
        await batcher.submit(("a", 1))
    # A caller's own limit ends its wait even when the error keeps being transient.
    with pytest.raises((TimeoutError, ConnectionRefusedError)):
        await batcher.submit(("a", 1), timeout=0.03)
    await batcher.close()


async def test_any_other_error_goes_to_every_caller_of_the_batch_and_the_next_batch_runs() -> None:
    async def run(batch: Sequence[Item]) -> list[str]:
        if batch[0][1] == 0:
            raise LookupError("a bug")
        return [key for key, _ in batch]

    batcher: Batcher[Item, str] = Batcher("b", run)
    answers = await asyncio.gather(*submit_all(batcher, items(2)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [LookupError, LookupError]

    assert await batcher.submit(("x", 5)) == "x"


async def test_a_result_that_is_an_error_is_raised_to_its_own_caller() -> None:
    async def run(batch: Sequence[Item]) -> list[str | Exception]:
        return [ValueError(key) if value % 2 else key for key, value in batch]

    batcher: Batcher[Item, str] = Batcher("b", run)
    answers = await asyncio.gather(*submit_all(batcher, items(2)), return_exceptions=True)

    assert answers[0] == "k00000"
    assert isinstance(answers[1], ValueError)


async def test_a_wrong_number_of_results_is_an_error_not_a_mix_up() -> None:
    async def run(batch: Sequence[Item]) -> list[str]:
        return ["one"]

    batcher: Batcher[Item, str] = Batcher("b", run)
    answers = await asyncio.gather(*submit_all(batcher, items(2)), return_exceptions=True)

    assert [type(answer) for answer in answers] == [RuntimeError, RuntimeError]


async def test_close_drains_refuses_new_items_and_can_be_repeated() -> None:
    gate = Gate()
    batcher: Batcher[Item, str] = Batcher("b", gate, max_in_flight=1, max_items=2)
    tasks = submit_all(batcher, items(5))
    await settle()
    closing = asyncio.create_task(batcher.close())
    await settle()
    assert not closing.done()
    with pytest.raises(Unavailable):
        await batcher.submit(("new", 1))

    answers = await gate.open_all(tasks)
    assert len(answers) == 5
    await closing
    await batcher.close()


async def test_closing_an_unused_batcher_returns() -> None:
    await Batcher("b", Gate()).close()


async def test_a_batch_does_not_run_in_the_context_of_one_of_its_callers() -> None:
    caller: contextvars.ContextVar[str] = contextvars.ContextVar("caller", default="nobody")
    seen: list[str] = []

    async def run(batch: Sequence[Item]) -> list[str]:
        seen.append(caller.get())
        return [key for key, _ in batch]

    batcher: Batcher[Item, str] = Batcher("b", run)
    caller.set("alice")
    await batcher.submit(("a", 1))

    assert seen == ["nobody"]


async def test_batches_in_flight_do_not_see_each_other_s_context() -> None:
    current: contextvars.ContextVar[str] = contextvars.ContextVar("current", default="nothing")
    seen: list[str] = []

    async def run(batch: Sequence[Item]) -> list[str]:
        seen.append(current.get())
        token = current.set(batch[0][0])
        await settle()
        assert current.get() == batch[0][0]
        current.reset(token)
        return [key for key, _ in batch]

    batcher: Batcher[Item, str] = Batcher("b", run, max_items=1)
    await asyncio.gather(*submit_all(batcher, items(6)))

    assert seen == ["nothing"] * 6


async def test_a_batch_that_follows_another_does_not_see_its_context() -> None:
    mine: contextvars.ContextVar[str] = contextvars.ContextVar("mine", default="nobody's")
    gate, seen = Gate(), []

    async def run(batch: Sequence[Item]) -> list[str]:
        seen.append(mine.get())
        mine.set("the first's")
        return await gate(batch)

    batcher: Batcher[Item, str] = Batcher("b", run, max_in_flight=1)
    first = submit_all(batcher, items(1))
    await settle()
    second = submit_all(batcher, items(1, start=1))
    await gate.open_all([*first, *second])

    assert seen == ["nobody's", "nobody's"]


async def test_after_a_batch_that_failed_the_next_one_begins_first_too() -> None:
    gate, begun = Gate(), []

    async def run(batch: Sequence[Item]) -> list[str]:
        begun.append(len(batch))
        await gate(batch)
        raise LookupError("no such thing")

    async def call(item: Item) -> int:
        with pytest.raises(LookupError):
            await batcher.submit(item)
        return len(begun)

    batcher: Batcher[Item, str] = Batcher("b", run, max_in_flight=1)
    first = asyncio.ensure_future(call(items(1)[0]))
    await settle()
    second = asyncio.ensure_future(call(items(1, start=1)[0]))
    await settle()
    await gate.open_one()

    assert await first == 2
    await gate.open_one()
    await second


async def test_a_thousand_callers_over_few_keys_are_all_answered() -> None:
    running: set[str] = set()
    overlaps: list[str] = []

    async def run(batch: Sequence[Item]) -> list[str]:
        keys = [key for key, _ in batch]
        overlaps.extend(key for key in keys if key in running or keys.count(key) > 1)
        assert keys == sorted(keys)
        running.update(keys)
        await settle()
        running.difference_update(keys)
        return [f"{key}={value}" for key, value in batch]

    batcher: Batcher[Item, str] = Batcher("b", run, key=lambda item: item[0], max_items=5)
    wanted = [(f"k{number % 17}", number) for number in range(1000)]
    answers = await asyncio.gather(*submit_all(batcher, wanted))

    assert answers == [f"{key}={value}" for key, value in wanted]
    assert overlaps == []
    assert (batcher.queued, batcher.in_flight) == (0, 0)


async def test_a_batch_that_is_not_full_waits_for_the_one_before_it() -> None:
    gate = Gate()
    batcher: Batcher[Item, str] = Batcher("b", gate, max_items=3, max_in_flight=2, gather=60.0)
    first = submit_all(batcher, items(1))
    await settle()
    few = submit_all(batcher, items(2, start=1))
    await settle()
    assert gate.batches == [items(1)]

    # A full one waits for nobody.
    more = submit_all(batcher, items(1, start=3))
    await settle()
    assert gate.batches == [items(1), items(3, start=1)]
    await gate.open_all([*first, *few, *more])


async def test_the_next_batch_begins_before_callers_of_the_last_one_go_on() -> None:
    gate = Gate()
    batcher: Batcher[Item, str] = Batcher("b", gate, max_in_flight=1)
    begun: list[int] = []

    async def call(item: Item) -> None:
        await batcher.submit(item)
        begun.append(len(gate.batches))

    calls = [asyncio.ensure_future(call(each)) for each in items(2)]
    await settle()
    last = submit_all(batcher, items(1, start=2))
    await gate.open_one()
    await asyncio.gather(*calls)

    assert begun == [2, 2]
    await gate.open_all(last)


async def test_of_a_batch_in_halves_the_next_one_waits_for_the_second() -> None:
    gate = Gate()
    refusals = iter([asyncpg.NotNullViolationError("bad")])

    async def run(batch: Sequence[Item]) -> list[str]:
        answers = await gate(batch)
        for refusal in refusals:
            raise refusal
        return answers

    batcher: Batcher[Item, str] = Batcher("b", run, max_in_flight=1)
    first = submit_all(batcher, items(2))
    await settle()
    last = submit_all(batcher, items(1, start=2))
    await gate.open_one()
    await gate.open_one()
    assert await first[0] == "k00000=0"
    await settle()

    assert gate.batches == [items(2), items(1), items(1, start=1)]
    await gate.open_all([*first, *last])


async def test_a_slow_batch_holds_the_next_up_for_a_bounded_time() -> None:
    gate = Gate()
    batcher: Batcher[Item, str] = Batcher("b", gate, max_in_flight=2, gather=0.01)
    first = submit_all(batcher, items(1))
    await gate.waiting.get()
    second = submit_all(batcher, items(1, start=1))
    opened = await asyncio.wait_for(gate.waiting.get(), 10)

    assert gate.batches == [items(1), items(1, start=1)]
    opened.set_result(None)
    assert await second[0] == "k00001=1"
    first[0].cancel()


async def test_a_batch_soon_after_another_waits_for_company() -> None:
    gate = Gate()
    batcher: Batcher[Item, str] = Batcher("b", gate, max_items=3, gather=60.0, linger=60.0)
    # An idle batcher sends at once, and a full batch never lingers.
    first = submit_all(batcher, items(1))
    await gate.open_one()
    assert await first[0] == "k00000=0"
    early = submit_all(batcher, items(2, start=1))
    await settle()
    assert gate.batches == [items(1)]
    late = submit_all(batcher, items(1, start=3))
    await settle()
    assert gate.batches == [items(1), items(3, start=1)]
    await gate.open_all([*early, *late])


async def test_company_is_waited_for_no_longer_than_said() -> None:
    gate = Gate()
    batcher: Batcher[Item, str] = Batcher("b", gate, gather=60.0, linger=0.01)
    first = submit_all(batcher, items(1))
    opened = await gate.waiting.get()
    # It would wait for the one before it, and lingers from the moment when that one is over.
    second = submit_all(batcher, items(1, start=1))
    await settle()
    assert gate.batches == [items(1)]
    opened.set_result(None)
    await asyncio.wait_for(gate.open_one(), 10)
    assert [await first[0], await second[0]] == ["k00000=0", "k00001=1"]


async def test_each_caller_has_its_own_patience() -> None:
    gate = Gate()
    batcher: Batcher[Item, str] = Batcher("b", gate)
    (long,) = submit_all(batcher, items(1), timeout=60.0)
    await settle()
    (short,) = submit_all(batcher, items(1, start=1), timeout=0.01)
    (middle,) = submit_all(batcher, items(1, start=2), timeout=0.02)
    for each in (short, middle):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(each, 10)
    assert not long.done()
    await gate.open_all([long])
    assert long.result() == "k00000=0"


async def test_many_items_of_one_caller_are_answered_in_order_each_with_its_own_error() -> None:
    seen: list[list[Item]] = []

    async def run(batch: Sequence[Item]) -> list[str | Exception]:
        seen.append(list(batch))
        return [ValueError(key) if value == 1 else key for key, value in batch]

    batcher: Batcher[Item, str] = Batcher("b", run, key=lambda item: item[0])
    answers = await batcher.submit_all(list(reversed(items(3))))

    assert [str(answer) for answer in answers] == ["k00002", "k00001", "k00000"]
    assert [isinstance(answer, ValueError) for answer in answers] == [False, True, False]
    assert seen == [items(3)]
    assert await batcher.submit_all([]) == []


async def test_equal_keys_of_one_caller_never_share_a_batch() -> None:
    seen: list[list[Item]] = []

    async def run(batch: Sequence[Item]) -> list[str]:
        seen.append(list(batch))
        return [f"{key}={value}" for key, value in batch]

    batcher: Batcher[Item, str] = Batcher("b", run, key=lambda item: item[0])

    assert await batcher.submit_all([("a", 1), ("b", 2), ("a", 3)]) == ["a=1", "b=2", "a=3"]
    assert seen == [[("a", 1), ("b", 2)], [("a", 3)]]


async def test_many_items_of_one_caller_fill_the_queue_and_the_rest_is_refused() -> None:
    batcher: Batcher[Item, str] = Batcher("b", _named, max_queue=2)
    *fitting, over = await batcher.submit_all(items(3))

    assert fitting == ["k00000", "k00001"]
    assert isinstance(over, ResourceExhausted)
    await batcher.close()
    (closed,) = await batcher.submit_all(items(1))
    assert isinstance(closed, Unavailable)


async def test_a_cancelled_caller_of_many_takes_all_that_waits_with_it() -> None:
    gate = Gate()
    batcher: Batcher[Item, str] = Batcher(
        "b", gate, max_items=1, max_in_flight=1, key=lambda item: item[0]
    )
    caller = asyncio.create_task(batcher.submit_all([*items(3), ("k00000", 9)]))
    await settle()
    caller.cancel()
    await settle()

    assert caller.cancelled()
    assert (gate.batches, batcher.queued) == ([items(1)], 0)
    (after,) = submit_all(batcher, [("k00000", 7)])
    assert await gate.open_all([after]) == ["k00000=7"]
    assert gate.batches == [items(1), [("k00000", 7)]]


async def _named(batch: Sequence[Item]) -> list[str]:
    return [key for key, _ in batch]


class NoSuchTime(asyncio.SelectorEventLoop):
    """A loop to which the next hour is as good as now; its handles then do not say when."""

    def call_at(  # type: ignore[override]  # nothing here depends on the callback's types
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> Any:
        if when - self.time() < 60:
            return super().call_at(when, callback, *args, context=context)
        return self.call_soon(callback, *args, context=context)


def test_uvloop_gives_a_handle_without_a_time_where_the_moment_is_now() -> None:
    loop = uvloop.new_event_loop()
    try:
        handle = loop.call_at(loop.time(), print)
        assert not hasattr(handle, "when")
        handle.cancel()
    finally:
        loop.close()


def test_no_answer_is_lost_where_the_next_batch_may_begin_as_good_as_now() -> None:
    async def scenario() -> list[str | BaseException]:
        gate = Gate()
        batcher: Batcher[Item, str] = Batcher("b", gate, max_items=2, max_in_flight=3, gather=3600)
        tasks = submit_all(batcher, items(1))
        await settle()
        # A full one begins beside the first; the last item waits for a moment when it may begin.
        tasks += submit_all(batcher, items(3, start=1))
        await settle()
        assert gate.batches == [items(1), items(2, start=1)]
        return await gate.open_all(tasks)

    with asyncio.Runner(loop_factory=NoSuchTime) as runner:
        answers = runner.run(asyncio.wait_for(scenario(), 10))
    assert answers == [f"k{n:05}={n}" for n in range(4)]
