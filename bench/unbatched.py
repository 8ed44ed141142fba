"""The same way in without batches: each request has its own look-up, row, admission and update.

`python unbatched.py PORT DATABASE_URL AUTOPILOT`, with the password in PGPASSWORD, the hook's
secret in HOOK_SECRET and a token in REVEILLE_TOKEN. What it does not do is what costs nothing:
limits, handshakes, explanations.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import grpc
import uvicorn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reveille.autopilot.v1 import dispatch_service_pb2 as pb
from reveille.autopilot.v1.dispatch_service_pb2_grpc import DispatchServiceStub
from reveille_runtime.ids import new_id
from reveille_runtime.queries import parse_queries

_FILE = Path(__file__).with_name("ingress.sql")
Q = parse_queries(_FILE.read_text(encoding="utf-8"), _FILE.name)


async def serve(port: int, url: str, autopilot: str) -> None:
    secret = os.environ["HOOK_SECRET"].encode()
    metadata = (("authorization", f"Bearer {os.environ['REVEILLE_TOKEN']}"),)
    pool = await asyncpg.create_pool(url, password=os.environ["PGPASSWORD"], min_size=10)
    stub: Any = DispatchServiceStub(grpc.aio.insecure_channel(autopilot))

    async def application(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = dict(scope["headers"])
        digest = hashlib.sha256(scope["path"].removeprefix("/hooks/").encode()).digest()
        async with pool.acquire() as connection:
            hook = await connection.fetchrow(Q["find_hook"].sql, digest)
        given = headers.get(b"x-hub-signature-256", b"")
        wanted = b"sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest().encode()
        assert hook is not None
        assert hmac.compare_digest(given, wanted)
        json.loads(body)
        delivery = new_id()
        async with pool.acquire() as connection:
            await connection.execute(
                Q["insert_delivery"].sql,
                delivery,
                hook["id"],
                hook["workspace_id"],
                headers[b"x-github-delivery"].decode(),
                body,
                hashlib.sha256(body).digest(),
            )
        answer = await stub.AdmitDeliveries(
            pb.AdmitDeliveriesRequest(
                deliveries=[
                    pb.DeliveryFacts(
                        delivery_id=str(delivery),
                        endpoint_id=str(hook["id"]),
                        workspace_id=str(hook["workspace_id"]),
                        event="push",
                        body_bytes=len(body),
                        body_sha256=hashlib.sha256(body).digest(),
                    )
                ]
            ),
            metadata=metadata,
        )
        (result,) = answer.results
        async with pool.acquire() as connection:
            await connection.execute(Q["record"].sql, delivery, UUID(result.run_id))
        text = json.dumps({"status": "accepted", "delivery_id": str(delivery)}).encode()
        length = str(len(text)).encode()
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-length", length)],
            }
        )
        await send({"type": "http.response.body", "body": text})

    config = uvicorn.Config(
        application, host="127.0.0.1", port=port, log_level="error", lifespan="off", loop="none"
    )
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
