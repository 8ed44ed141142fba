"""What hooks can be like: the gateway's to know, asked before a webhook is published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from google.protobuf.json_format import ParseDict

from reveille.webhook.v1 import endpoint_service_pb2 as endpoint_pb
from reveille_runtime import logs
from reveille_runtime.errors import DomainError, InvalidArgument
from reveille_runtime.rpc_errors import as_domain_errors

if TYPE_CHECKING:
    from reveille.webhook.v1.endpoint_service_pb2_grpc import EndpointServiceAsyncStub

# How long a caller waits for the gateway, which may be away.
_PATIENCE_SECONDS = 1.0
_log = logs.get_logger(__name__)


class Hooks:
    """Refuses what the gateway would refuse, while somebody is there to be told.

    A sender that was known once, and is to be treated as usual, is not asked for again; one that is
    not known always is, so that a sender which came with a release of the gateway is known at once.
    """

    def __init__(self, endpoints: EndpointServiceAsyncStub) -> None:
        self._endpoints = endpoints
        self._known: set[str] = set()

    async def require_possible(self, provider: str, options: Mapping[str, object]) -> None:
        """Let pass what the gateway can do, and anything while it cannot be asked.

        Raises:
            InvalidArgument: it does not know the sender, or cannot do what the options say.
        """
        if provider in self._known and not options:
            return
        request = endpoint_pb.CheckEndpointRequest(
            provider=provider, options=endpoint_options(options)
        )
        try:
            with as_domain_errors():
                await self._endpoints.CheckEndpoint(request, timeout=_PATIENCE_SECONDS)
        except InvalidArgument as error:
            raise InvalidArgument(
                [replace(each, field=f"webhook.{each.field}") for each in error.violations],
                reason=error.reason,
            ) from error
        except DomainError as error:
            # The webhook is stored and offered to the gateway, whose refusal its row then tells.
            _log.info(
                "The gateway could not be asked about a hook.",
                action="trigger.hook_unchecked",
                provider=provider,
                cause=error.message,
            )
            return
        self._known.add(provider)


def endpoint_options(options: Mapping[str, object]) -> endpoint_pb.EndpointOptions:
    """Put a hook's options back into the gateway's words."""
    return ParseDict(dict(options), endpoint_pb.EndpointOptions(), ignore_unknown_fields=True)
