"""Endpoints follow their triggers, secrets stay secret, and only autopilot has a say."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from tests.integration.webhook.conftest import SECRET, Gateway, Hook, endpoint_of, stamp

from reveille.webhook.v1 import endpoint_service_pb2 as pb
from reveille.webhook.v1.endpoint_service_pb2_grpc import EndpointServiceStub
from reveille_runtime.access import Role
from reveille_runtime.crypto import Sealer
from reveille_runtime.errors import DomainError, InvalidArgument, NotFound, PermissionDenied
from reveille_runtime.rpc_errors import from_rpc_error
from reveille_webhook.providers.table import PROVIDERS
from reveille_webhook.usecases.secrets import Secrets

BODY = b'{"action":"opened"}'


async def refused(call: Any) -> DomainError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


async def put(gateway: Gateway, endpoint: pb.Endpoint) -> None:
    await gateway.endpoints().PutEndpoint(pb.PutEndpointRequest(endpoint=endpoint))


async def delete(gateway: Gateway, hook: Hook, revision: int) -> None:
    await gateway.endpoints().DeleteEndpoint(
        pb.DeleteEndpointRequest(endpoint_id=str(hook.id), revision=revision)
    )


async def status(gateway: Gateway, hook: Hook) -> int:
    return (await gateway.post(hook, BODY, secret=None)).status


async def test_older_revisions_change_nothing_and_tombstones_last(gateway: Gateway) -> None:
    hook = await gateway.hook(secret=None, revision=5)
    stale = Hook(hook.id, hook.workspace_id, "awt_stale", None)

    await put(gateway, endpoint_of(stale, revision=4))
    await put(gateway, endpoint_of(stale, revision=5))
    await delete(gateway, hook, 5)
    kept = [await status(gateway, hook), await status(gateway, stale)]
    await delete(gateway, hook, 6)
    await put(gateway, endpoint_of(hook, revision=6))
    gone = await status(gateway, hook)
    await put(gateway, endpoint_of(hook, revision=7))

    assert (kept, gone, await status(gateway, hook)) == ([200, 404], 404, 200)


async def test_the_senders_that_are_known_are_told_to_autopilot_and_to_people(
    gateway: Gateway,
) -> None:
    member = gateway.stage.keys.user("maria", {uuid4(): Role.MEMBER})
    for stub in (gateway.endpoints(), EndpointServiceStub(gateway.channel(member))):
        answer = await stub.ListProviders(pb.ListProvidersRequest())
        found = {each.name: each for each in answer.providers}
        assert list(found) == sorted(PROVIDERS)
        assert found["github"].signature_header == "x-hub-signature-256"
        assert found["slack"].scheme.message == "v0:{timestamp}:{body}"
        assert found["stripe"].scheme.timestamp_prefix == "t="
        # Whoever signs with it need not know what else it is for.
        assert found["meta"].scheme.key == "text"
        # What takes more than a template is not told as one.
        assert not found["adyen"].HasField("scheme")
        assert found["aws_sns"].demands_secret
    error = await refused(gateway.endpoints("scheduler").ListProviders(pb.ListProvidersRequest()))
    assert isinstance(error, PermissionDenied)


async def test_a_sender_is_told_as_a_hook_has_it(gateway: Gateway) -> None:
    stub = gateway.endpoints()
    generic = pb.GenericScheme(header="X-Acme", prefix="v1=", algorithm="sha512", separator=",")
    usual = await stub.ListProviders(pb.ListProvidersRequest())
    answer = await stub.ListProviders(pb.ListProvidersRequest(generic=generic))

    told = {each.name: each for each in answer.providers}
    changed = [each.name for each in usual.providers if told[each.name] != each]
    assert changed == ["generic_hmac", "generic_token"]
    assert told["generic_hmac"].signature_header == told["generic_token"].signature_header
    scheme = told["generic_hmac"].scheme
    assert told["generic_hmac"].signature_header == "x-acme"
    assert (scheme.algorithm, scheme.prefix, scheme.separator) == ("hmac_sha512", "v1=", ",")
    # Only a hook that names nothing else keeps the usual prefix.
    event = pb.ListProvidersRequest(generic=pb.GenericScheme(event="built"))
    assert await stub.ListProviders(event) == usual
    wrong = pb.ListProvidersRequest(generic=pb.GenericScheme(algorithm="md5"))
    error = await refused(stub.ListProviders(wrong))
    assert isinstance(error, InvalidArgument)
    assert [each.field for each in error.violations] == ["generic.algorithm"]


async def test_people_may_ask_whether_there_can_be_such_a_hook(gateway: Gateway) -> None:
    member = gateway.stage.keys.user("maria", {uuid4(): Role.MEMBER})
    stub = EndpointServiceStub(gateway.channel(member))

    await stub.CheckEndpoint(pb.CheckEndpointRequest(provider="github"))
    error = await refused(stub.CheckEndpoint(pb.CheckEndpointRequest(provider="carrier_pigeon")))

    assert isinstance(error, InvalidArgument)
    assert [each.field for each in error.violations] == ["provider"]


async def test_a_deletion_that_comes_first_refuses_the_late_creation(gateway: Gateway) -> None:
    hook = Hook(uuid4(), uuid4(), "awt_late", None)

    await delete(gateway, hook, 3)
    await put(gateway, endpoint_of(hook, revision=2))

    assert await status(gateway, hook) == 404


async def test_a_deletion_destroys_the_secrets(gateway: Gateway) -> None:
    hook = await gateway.hook()

    await delete(gateway, hook, 2)

    assert await gateway.sql("SELECT count(*) FROM webhook.endpoint_secrets") == 0
    request = pb.ListSecretsRequest(endpoint_id=str(hook.id))
    error = await refused(gateway.endpoints().ListSecrets(request))
    assert isinstance(error, NotFound)
    late = pb.AddSecretRequest(endpoint_id=str(hook.id), secret_id=str(uuid4()), secret=SECRET)
    assert isinstance(await refused(gateway.endpoints().AddSecret(late)), NotFound)
    # Wanted again, it starts without one.
    await put(gateway, endpoint_of(hook, revision=3))
    assert await status(gateway, hook) == 200


async def test_secrets_are_sealed_listed_by_hint_and_added_once(gateway: Gateway) -> None:
    hook = await gateway.hook()
    stub = gateway.endpoints()
    second = pb.AddSecretRequest(
        endpoint_id=str(hook.id),
        secret_id=str(uuid4()),
        secret=b"sixteen bytes it\x00",
        expire_time=stamp(4_000_000_000),
    )

    added = await stub.AddSecret(second)
    again = await stub.AddSecret(second)
    listed = await stub.ListSecrets(pb.ListSecretsRequest(endpoint_id=str(hook.id)))

    assert added == again
    assert added.secret.hint == " it?"
    assert [each.hint for each in listed.secrets] == [SECRET.decode()[-4:], " it?"]
    assert not listed.secrets[0].HasField("expire_time")
    assert listed.secrets[1].expire_time == stamp(4_000_000_000)
    sealed = await gateway.sql("SELECT string_agg(sealed, ''::bytea) FROM webhook.endpoint_secrets")
    assert SECRET not in sealed


async def test_a_removed_secret_is_gone(gateway: Gateway) -> None:
    hook = await gateway.hook()
    request = pb.RemoveSecretRequest(endpoint_id=str(hook.id), secret_id=str(hook.secret_id))

    await gateway.endpoints().RemoveSecret(request)

    assert isinstance(await refused(gateway.endpoints().RemoveSecret(request)), NotFound)
    assert await status(gateway, hook) == 200


async def test_a_secret_s_id_belongs_to_one_endpoint(gateway: Gateway) -> None:
    one, two = await gateway.hook(), await gateway.hook()
    request = pb.AddSecretRequest(
        endpoint_id=str(two.id), secret_id=str(one.secret_id), secret=SECRET
    )

    error = await refused(gateway.endpoints().AddSecret(request))

    assert isinstance(error, InvalidArgument)
    assert [each.field for each in error.violations] == ["secret_id"]


async def test_a_secret_is_removed_at_its_own_endpoint_alone(gateway: Gateway) -> None:
    hook, other = await gateway.hook(), await gateway.hook()
    request = pb.RemoveSecretRequest(endpoint_id=str(other.id), secret_id=str(hook.secret_id))

    error = await refused(gateway.endpoints().RemoveSecret(request))

    assert isinstance(error, NotFound)
    assert (await gateway.post(hook, BODY)).status == 200


async def test_a_secret_moved_to_another_endpoint_opens_nothing(gateway: Gateway) -> None:
    one, two = await gateway.hook(), await gateway.hook(secret=None)
    await gateway.sql("UPDATE webhook.endpoint_secrets SET endpoint_id = $1", two.id)

    assert (await gateway.post(two, BODY)).status == 401
    assert (await gateway.post(one, BODY)).status == 200


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"provider": "nobody"}, "endpoint.provider"),
    ({"provider": ""}, "endpoint.provider"),
    ({"token_sha256": b"short"}, "endpoint.token_sha256"),
    ({"previous_token_sha256": b"x" * 32}, "endpoint.previous_token_expire_time"),
    ({"previous_token_sha256": b"short"}, "endpoint.previous_token_sha256"),
    ({"previous_token_expire_time": stamp(4e9)}, "endpoint.previous_token_expire_time"),
    ({"max_body_bytes": -1}, "endpoint.max_body_bytes"),
    ({"max_body_bytes": 25 * 1024 * 1024 + 1}, "endpoint.max_body_bytes"),
    ({"endpoint_id": "x"}, "endpoint.endpoint_id"),
    ({"workspace_id": ""}, "endpoint.workspace_id"),
    ({"revision": 0}, "endpoint.revision"),
]


async def test_a_wish_that_cannot_be_met_names_the_field(gateway: Gateway) -> None:
    for change, field in WRONG:
        endpoint = endpoint_of(Hook(uuid4(), uuid4(), "awt_x", None))
        for name, value in change.items():
            if isinstance(value, Timestamp):
                getattr(endpoint, name).CopyFrom(value)
            else:
                setattr(endpoint, name, value)

        request = pb.PutEndpointRequest(endpoint=endpoint)
        error = await refused(gateway.endpoints().PutEndpoint(request))

        assert isinstance(error, InvalidArgument), change
        assert field in [each.field for each in error.violations]


async def test_one_token_leads_to_one_endpoint(gateway: Gateway) -> None:
    hook = await gateway.hook()
    other = Hook(uuid4(), hook.workspace_id, hook.token, None)

    error = await refused(
        gateway.endpoints().PutEndpoint(pb.PutEndpointRequest(endpoint=endpoint_of(other)))
    )

    assert isinstance(error, InvalidArgument)
    assert [each.field for each in error.violations] == ["endpoint.token_sha256"]


async def test_secrets_are_neither_guessable_nor_endless(gateway: Gateway) -> None:
    hook = await gateway.hook(secret=None)
    for size in (0, 15, 1025):
        request = pb.AddSecretRequest(
            endpoint_id=str(hook.id), secret_id=str(uuid4()), secret=b"x" * size
        )

        assert isinstance(await refused(gateway.endpoints().AddSecret(request)), InvalidArgument)


async def test_nobody_but_autopilot_manages_endpoints(gateway: Gateway) -> None:
    request = pb.PutEndpointRequest(endpoint=endpoint_of(Hook(uuid4(), uuid4(), "awt_x", None)))
    for caller in ("scheduler", "heartbeat", "webhook-gateway"):
        error = await refused(gateway.endpoints(caller).PutEndpoint(request))

        assert isinstance(error, PermissionDenied)


async def test_a_secret_that_its_sender_brings_is_taken_once(gateway: Gateway) -> None:
    hook = await gateway.hook("asana", secret=None)
    secrets = Secrets(gateway.database, Sealer(gateway.stage.sealing_key))

    taken = [await secrets.adopt(hook.id, uuid4(), each * 32) for each in (b"a", b"b")]
    nowhere = await secrets.adopt(uuid4(), uuid4(), b"c" * 32)

    assert (taken, nowhere) == ([True, False], False)
    assert [each.hint for each in await secrets.list(hook.id)] == ["aaaa"]


@pytest.mark.parametrize(
    ("provider", "headers", "body"),
    [
        ("notion", {}, b'{"verification_token":"secret_of_a_test"}'),
        ("asana", {"X-Hook-Secret": "a secret of a sender"}, b"{}"),
    ],
)
async def test_a_first_request_that_brings_a_secret_is_taken_where_there_is_none(
    gateway: Gateway, provider: str, headers: dict[str, str], body: bytes
) -> None:
    without, with_one = await gateway.hook(provider, secret=None), await gateway.hook(provider)

    taken = await gateway.post(without, body, headers, secret=None)
    refused = await gateway.post(with_one, body, headers, secret=None)

    assert (taken.status, refused.status) == (200, 401)
    kept = [
        (row["event"], row["body"]) for row in await gateway.rows() if row["state"] == "ignored"
    ]
    listed = await gateway.endpoints().ListSecrets(
        pb.ListSecretsRequest(endpoint_id=str(without.id))
    )
    if provider == "notion":
        # People read it there, and put it in place.
        assert (kept, len(listed.secrets)) == ([("verification_token", body)], 0)
    else:
        assert (kept, [each.hint for each in listed.secrets]) == ([], ["nder"])
