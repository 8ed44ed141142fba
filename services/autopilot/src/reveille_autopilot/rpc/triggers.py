"""The part of AutopilotService that publishes triggers and their signing secrets."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille_autopilot.rpc import edits, parse
from reveille_autopilot.rpc.rules import RuleServicer
from reveille_autopilot.usecases.autopilots import Autopilots
from reveille_autopilot.usecases.collaborators import Collaborators
from reveille_autopilot.usecases.read_rules import RuleReader
from reveille_autopilot.usecases.signing import SigningSecrets
from reveille_autopilot.usecases.triggers import Triggers
from reveille_runtime.access import current_actor
from reveille_runtime.paging import fitting, page_token, read_page


class TriggerServicer(RuleServicer):
    """Serves rules and their triggers; runs are served by the class derived from it."""

    def __init__(
        self,
        autopilots: Autopilots,
        reader: RuleReader,
        collaborators: Collaborators,
        triggers: Triggers,
        secrets: SigningSecrets,
    ) -> None:
        super().__init__(autopilots, reader, collaborators)
        self._triggers = triggers
        self._secrets = secrets

    async def CreateTrigger(
        self, request: pb.CreateTriggerRequest, context: Any
    ) -> pb.CreateTriggerResponse:
        """Create a trigger."""
        new = parse.new_trigger(request)
        return await self._triggers.create(current_actor(), new, request)

    async def UpdateTrigger(
        self, request: pb.UpdateTriggerRequest, context: Any
    ) -> pb.UpdateTriggerResponse:
        """Change a trigger."""
        after = await self._triggers.update(current_actor(), edits.trigger_edit(request))
        return pb.UpdateTriggerResponse(trigger=after.message())

    async def GetTrigger(
        self, request: pb.GetTriggerRequest, context: Any
    ) -> pb.GetTriggerResponse:
        """Read a trigger."""
        trigger_id = parse.one_id("trigger_id", request.trigger_id)
        found = await self._triggers.get(current_actor(), trigger_id)
        return pb.GetTriggerResponse(trigger=found.message())

    async def ListTriggers(
        self, request: pb.ListTriggersRequest, context: Any
    ) -> pb.ListTriggersResponse:
        """List triggers."""
        autopilot_id = parse.one_id("autopilot_id", request.autopilot_id)
        query = ("ListTriggers", autopilot_id)
        page = read_page(request.page_size, request.page_token, query)
        after = None if page.after is None else UUID(str(page.after[0]))
        found = await self._triggers.page(current_actor(), autopilot_id, after, page.limit)
        triggers = [each.message() for each in found]
        shown = triggers[: min(page.size, fitting(each.ByteSize() for each in triggers))]
        more = page_token([shown[-1].trigger_id], query) if len(found) > len(shown) else ""
        return pb.ListTriggersResponse(triggers=shown, next_page_token=more)

    async def DeleteTrigger(
        self, request: pb.DeleteTriggerRequest, context: Any
    ) -> pb.DeleteTriggerResponse:
        """Delete a trigger."""
        trigger_id = parse.one_id("trigger_id", request.trigger_id)
        await self._triggers.delete(current_actor(), trigger_id)
        return pb.DeleteTriggerResponse()

    async def RotateWebhookToken(
        self, request: pb.RotateWebhookTokenRequest, context: Any
    ) -> pb.RotateWebhookTokenResponse:
        """Give a webhook a new address."""
        trigger_id, grace = parse.rotation(request)
        return await self._triggers.rotate(current_actor(), trigger_id, grace, request)

    async def AddSigningSecret(
        self, request: pb.AddSigningSecretRequest, context: Any
    ) -> pb.AddSigningSecretResponse:
        """Add a signing secret."""
        new = parse.new_secret(request)
        return await self._secrets.add(current_actor(), new, request)

    async def RemoveSigningSecret(
        self, request: pb.RemoveSigningSecretRequest, context: Any
    ) -> pb.RemoveSigningSecretResponse:
        """Destroy a signing secret."""
        trigger_id, secret_id = parse.two_ids(
            ("trigger_id", request.trigger_id), ("secret_id", request.secret_id)
        )
        await self._secrets.remove(current_actor(), trigger_id, secret_id)
        return pb.RemoveSigningSecretResponse()

    async def ListSigningSecrets(
        self, request: pb.ListSigningSecretsRequest, context: Any
    ) -> pb.ListSigningSecretsResponse:
        """List signing secrets by their hints."""
        trigger_id = parse.one_id("trigger_id", request.trigger_id)
        found = await self._secrets.page(current_actor(), trigger_id)
        return pb.ListSigningSecretsResponse(signing_secrets=found)
