"""EndpointService: the wishes of autopilot, and signing secrets."""

from __future__ import annotations

from typing import Any

from reveille.webhook.v1 import endpoint_service_pb2 as pb
from reveille.webhook.v1.endpoint_service_pb2_grpc import EndpointServiceServicer
from reveille_runtime.validation import Violations
from reveille_webhook.domain.endpoint import LONGEST_SECRET, SHORTEST_SECRET
from reveille_webhook.rpc import convert
from reveille_webhook.usecases.endpoints import Endpoints
from reveille_webhook.usecases.secrets import Secrets


class EndpointServicer(EndpointServiceServicer):
    """Serves the endpoints' own API."""

    def __init__(self, endpoints: Endpoints, secrets: Secrets) -> None:
        self._endpoints = endpoints
        self._secrets = secrets

    async def PutEndpoint(
        self, request: pb.PutEndpointRequest, context: Any
    ) -> pb.PutEndpointResponse:
        """Store a wish."""
        found = Violations()
        endpoint = convert.read_endpoint(found, request.endpoint)
        found.check()
        await self._endpoints.put(endpoint)
        return pb.PutEndpointResponse()

    async def CheckEndpoint(
        self, request: pb.CheckEndpointRequest, context: Any
    ) -> pb.CheckEndpointResponse:
        """Judge a wish without storing it."""
        found = Violations()
        convert.read_options(found, "options", request.provider, request.options)
        problem = self._endpoints.refusal_of(request.provider)
        if problem is not None:
            found.add("provider", problem)
        found.check()
        return pb.CheckEndpointResponse()

    async def DeleteEndpoint(
        self, request: pb.DeleteEndpointRequest, context: Any
    ) -> pb.DeleteEndpointResponse:
        """Leave a tombstone."""
        found = Violations()
        endpoint_id = found.uuid("endpoint_id", request.endpoint_id)
        revision = found.integer("revision", request.revision, minimum=1, maximum=(1 << 63) - 1)
        found.check()
        await self._endpoints.delete(endpoint_id, revision)
        return pb.DeleteEndpointResponse()

    async def AddSecret(self, request: pb.AddSecretRequest, context: Any) -> pb.AddSecretResponse:
        """Add a secret."""
        found = Violations()
        endpoint_id = found.uuid("endpoint_id", request.endpoint_id)
        secret_id = found.uuid("secret_id", request.secret_id)
        if not SHORTEST_SECRET <= len(request.secret) <= LONGEST_SECRET:
            found.add(
                "secret", f"must have {SHORTEST_SECRET} to {LONGEST_SECRET} bytes", "INVALID_FIELD"
            )
        expires_at = (
            found.timestamp("expire_time", request.expire_time)
            if request.HasField("expire_time")
            else None
        )
        found.check()
        secret = await self._secrets.add(endpoint_id, secret_id, request.secret, expires_at)
        return pb.AddSecretResponse(secret=convert.write_secret(secret))

    async def RemoveSecret(
        self, request: pb.RemoveSecretRequest, context: Any
    ) -> pb.RemoveSecretResponse:
        """Destroy a secret."""
        found = Violations()
        endpoint_id = found.uuid("endpoint_id", request.endpoint_id)
        secret_id = found.uuid("secret_id", request.secret_id)
        found.check()
        await self._secrets.remove(endpoint_id, secret_id)
        return pb.RemoveSecretResponse()

    async def ListSecrets(
        self, request: pb.ListSecretsRequest, context: Any
    ) -> pb.ListSecretsResponse:
        """List secrets by their hints."""
        found = Violations()
        endpoint_id = found.uuid("endpoint_id", request.endpoint_id)
        found.check()
        secrets = await self._secrets.list(endpoint_id)
        return pb.ListSecretsResponse(secrets=[convert.write_secret(each) for each in secrets])

    async def ListProviders(
        self, request: pb.ListProvidersRequest, context: Any
    ) -> pb.ListProvidersResponse:
        """List the senders that an endpoint can be for."""
        found = Violations()
        generic = None
        if request.HasField("generic"):
            # Of a token only the header counts, so what can be said of an HMAC is what may be said.
            generic = convert.read_generic(found, "generic", "generic_hmac", request.generic)
        found.check()
        return pb.ListProvidersResponse(
            providers=[convert.write_provider(each) for each in self._endpoints.providers(generic)]
        )
