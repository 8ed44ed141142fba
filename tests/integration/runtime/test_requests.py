"""request_id: one effect and one answer, whatever is repeated, at once or later."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from importlib import resources
from pathlib import Path

import pytest

from reveille.autopilot.v1 import workspace_service_pb2 as pb
from reveille_runtime import requests
from reveille_runtime.crypto import SealBroken, Sealer, generate_key
from reveille_runtime.db import Database, Tx
from reveille_runtime.errors import FailedPrecondition, InvalidArgument
from reveille_testkit.database import TestDatabase

DDL = resources.files("reveille_runtime").joinpath("requests_ddl.sql").read_text()
Request = pb.CreateWorkspaceRequest
Response = pb.CreateWorkspaceResponse


class Creator:
    """An effect that can be counted."""

    def __init__(self) -> None:
        self.made: list[Response] = []

    async def __call__(self) -> Response:
        answer = Response()
        answer.workspace.workspace_id = f"w{len(self.made)}"
        self.made.append(answer)
        return answer


@pytest.fixture
async def db(scratch: TestDatabase) -> Database:
    await scratch.ddl("scratch", DDL)
    return await scratch.open("scratch")


@pytest.fixture
def creator() -> Creator:
    return Creator()


@pytest.fixture
def sealer(tmp_path: Path) -> Sealer:
    (tmp_path / "keys").write_text(generate_key())
    return Sealer(tmp_path / "keys")


async def ask(
    tx: Tx,
    make: Callable[[], Awaitable[Response]],
    request: Request,
    principal: str = "user:1",
    method: str = "/x/Create",
    sealer: Sealer | None = None,
) -> Response:
    return await requests.once(
        tx,
        principal=principal,
        method=method,
        request=request,
        response=Response,
        make=make,
        credential_sealer=sealer,
    )


async def test_a_repeat_gets_the_first_answer_and_no_second_effect(
    db: Database, creator: Creator
) -> None:
    request = Request(request_id="r1", name="n")
    answers = []
    for _ in range(3):
        async with db.transaction() as tx:
            answers.append(await ask(tx, creator, request))
    assert answers == [creator.made[0]] * 3
    assert len(creator.made) == 1


async def test_without_an_id_each_request_has_its_effect(db: Database, creator: Creator) -> None:
    for _ in range(2):
        async with db.transaction() as tx:
            await ask(tx, creator, Request(name="n"))
    assert len(creator.made) == 2


async def test_ids_are_scoped_by_principal_and_method(db: Database, creator: Creator) -> None:
    request = Request(request_id="r1")
    async with db.transaction() as tx:
        await ask(tx, creator, request)
        await ask(tx, creator, request, principal="user:2")
        await ask(tx, creator, request, method="/x/Other")
    assert len(creator.made) == 3


async def test_the_same_id_with_another_body_is_refused(db: Database, creator: Creator) -> None:
    async with db.transaction() as tx:
        await ask(tx, creator, Request(request_id="r1", name="one"))
    with pytest.raises(InvalidArgument) as refused:
        async with db.transaction() as tx:
            await ask(tx, creator, Request(request_id="r1", name="two"))
    assert refused.value.reason == "REQUEST_ID_REUSED"
    assert refused.value.violations[0].field == "request_id"
    assert len(creator.made) == 1


async def test_an_effect_that_failed_leaves_the_id_free(db: Database, creator: Creator) -> None:
    async def fail() -> Response:
        raise LookupError

    request = Request(request_id="r1")
    with contextlib.suppress(LookupError):
        async with db.transaction() as tx:
            await ask(tx, fail, request)
    async with db.transaction() as tx:
        await ask(tx, creator, request)
    assert len(creator.made) == 1


async def test_a_repeat_at_the_same_time_waits_for_the_first(
    db: Database, creator: Creator
) -> None:
    request = Request(request_id="r1")
    first_at_work, finish = asyncio.Event(), asyncio.Event()

    async def slow() -> Response:
        first_at_work.set()
        await finish.wait()
        return await creator()

    async def send(make: Callable[[], Awaitable[Response]]) -> Response:
        async with db.transaction() as tx:
            if make is creator:
                finish.set()
            return await ask(tx, make, request)

    first = asyncio.create_task(send(slow))
    await first_at_work.wait()
    second = await send(creator)

    assert second == await first
    assert len(creator.made) == 1


async def test_a_repeat_takes_over_when_the_first_rolls_back(
    db: Database, creator: Creator, scratch: TestDatabase
) -> None:
    request = Request(request_id="r1")
    first_at_work, fail_now = asyncio.Event(), asyncio.Event()

    async def failing() -> Response:
        first_at_work.set()
        await fail_now.wait()
        raise LookupError

    async def first() -> None:
        async with db.transaction() as tx:
            await ask(tx, failing, request)

    async def second() -> Response:
        async with db.transaction() as tx:
            fail_now.set()
            return await ask(tx, creator, request)

    attempt = asyncio.create_task(first())
    await first_at_work.wait()
    answer = await second()
    with pytest.raises(LookupError):
        await attempt
    assert creator.made == [answer]


async def test_an_answer_with_a_credential_is_kept_sealed_and_for_ten_minutes(
    db: Database, creator: Creator, sealer: Sealer, scratch: TestDatabase
) -> None:
    request = Request(request_id="r1")
    async with db.transaction() as tx:
        first = await ask(tx, creator, request, sealer=sealer)
    admin = await scratch.admin()
    stored = await admin.fetchval("SELECT response FROM scratch.requests")
    assert b"w0" not in stored

    db.move_clock(599)
    async with db.transaction() as tx:
        assert await ask(tx, creator, request, sealer=sealer) == first
    db.move_clock(1)
    with pytest.raises(FailedPrecondition) as refused:
        async with db.transaction() as tx:
            await ask(tx, creator, request, sealer=sealer)
    assert refused.value.reason == "REQUEST_ANSWER_EXPIRED"
    assert len(creator.made) == 1

    await requests.prune(db)
    assert await admin.fetchval("SELECT response FROM scratch.requests") is None
    with pytest.raises(FailedPrecondition):
        async with db.transaction() as tx:
            await ask(tx, creator, request, sealer=sealer)


async def test_a_sealed_answer_cannot_be_moved_to_another_caller(
    db: Database, creator: Creator, sealer: Sealer, scratch: TestDatabase
) -> None:
    request = Request(request_id="r1")
    async with db.transaction() as tx:
        await ask(tx, creator, request, sealer=sealer)
    admin = await scratch.admin()
    await admin.execute("UPDATE scratch.requests SET principal = 'user:2'")

    with pytest.raises(SealBroken):
        async with db.transaction() as tx:
            await ask(tx, creator, request, principal="user:2", sealer=sealer)


async def test_ids_are_known_for_a_day_and_then_forgotten(db: Database, creator: Creator) -> None:
    request = Request(request_id="r1")
    async with db.transaction() as tx:
        await ask(tx, creator, request)
    db.move_clock(24 * 3600 - 60)
    assert await requests.prune(db) == 0
    db.move_clock(120)
    assert await requests.prune(db, timedelta(hours=24)) == 1
    async with db.transaction() as tx:
        await ask(tx, creator, request)
    assert len(creator.made) == 2


@pytest.mark.parametrize("request_id", ["x" * 129])
async def test_an_id_that_is_too_long_is_refused(
    db: Database, creator: Creator, request_id: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        async with db.transaction() as tx:
            await ask(tx, creator, Request(request_id=request_id))
    assert refused.value.reason == "INVALID_REQUEST_ID"


def test_the_fingerprint_leaves_out_the_id_only() -> None:
    one = requests.fingerprint(Request(request_id="a", name="n"))
    assert one == requests.fingerprint(Request(request_id="b", name="n"))
    assert one != requests.fingerprint(Request(request_id="a", name="m"))
