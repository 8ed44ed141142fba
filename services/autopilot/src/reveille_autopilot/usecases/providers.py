"""The senders that webhooks can be for: the gateway's to know, asked when one is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reveille.webhook.v1 import endpoint_service_pb2 as endpoint_pb
from reveille_runtime import logs
from reveille_runtime.errors import DomainError, InvalidArgument
from reveille_runtime.rpc_errors import as_domain_errors

if TYPE_CHECKING:
    from reveille.webhook.v1.endpoint_service_pb2_grpc import EndpointServiceAsyncStub

# How long a caller waits for the gateway, which may be away.
_PATIENCE_SECONDS = 1.0
_log = logs.get_logger(__name__)


class Providers:
    """Refuses what the gateway would refuse, while somebody is there to be told.

    A name that was known once is not asked for again; one that is not known always is, so that a
    sender which came with a release of the gateway is known at once.
    """

    def __init__(self, endpoints: EndpointServiceAsyncStub) -> None:
        self._endpoints = endpoints
        self._known: frozenset[str] = frozenset()

    async def require_known(self, name: str) -> None:
        """Let a known sender pass, and any while the gateway cannot be asked.

        Raises:
            InvalidArgument: the gateway does not know it.
        """
        if name in self._known:
            return
        try:
            with as_domain_errors():
                answer = await self._endpoints.ListProviders(
                    endpoint_pb.ListProvidersRequest(), timeout=_PATIENCE_SECONDS
                )
        except DomainError as error:
            # The webhook is stored and offered to the gateway, whose refusal its row then tells.
            _log.info(
                "The gateway could not be asked for its providers.",
                action="trigger.provider_unchecked",
                provider=name,
                cause=error.message,
            )
            return
        self._known = frozenset(each.name for each in answer.providers)
        if name not in self._known:
            known = ", ".join(sorted(self._known))
            raise InvalidArgument.of("webhook.provider", f"must be one of: {known}")
