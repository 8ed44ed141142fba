"""The part of AutopilotService that publishes rules and shows what they have said."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.autopilot.v1.autopilot_service_pb2_grpc import AutopilotServiceServicer
from reveille_autopilot.rpc import edits, parse
from reveille_autopilot.usecases import messages
from reveille_autopilot.usecases.autopilots import Autopilots, Published
from reveille_autopilot.usecases.collaborators import Collaborators
from reveille_autopilot.usecases.read_rules import RuleReader
from reveille_runtime.access import current_actor
from reveille_runtime.paging import fitting, page_token, read_page


class RuleServicer(AutopilotServiceServicer):
    """Serves rules; their triggers are served by the class derived from it."""

    def __init__(
        self, autopilots: Autopilots, reader: RuleReader, collaborators: Collaborators
    ) -> None:
        self._autopilots = autopilots
        self._reader = reader
        self._collaborators = collaborators

    async def CreateAutopilot(
        self, request: pb.CreateAutopilotRequest, context: Any
    ) -> pb.CreateAutopilotResponse:
        """Create a rule."""
        new = parse.new_autopilot(request)
        return await self._autopilots.create(current_actor(), new, request)

    async def GetAutopilot(
        self, request: pb.GetAutopilotRequest, context: Any
    ) -> pb.GetAutopilotResponse:
        """Read a rule."""
        autopilot_id = parse.one_id("autopilot_id", request.autopilot_id)
        return await self._reader.get(current_actor(), autopilot_id)

    async def ListAutopilots(
        self, request: pb.ListAutopilotsRequest, context: Any
    ) -> pb.ListAutopilotsResponse:
        """List rules."""
        workspace_id, statuses = parse.rule_filter(request)
        query = ("ListAutopilots", workspace_id, *sorted(statuses))
        page = read_page(request.page_size, request.page_token, query)
        before = None if page.after is None else UUID(str(page.after[0]))
        found = await self._reader.page(current_actor(), workspace_id, statuses, before, page.limit)
        fits = fitting(
            rule.ByteSize() + summary.ByteSize()
            for rule, summary in zip(found.autopilots, found.summaries, strict=True)
        )
        shown = min(page.size, fits)
        if len(found.autopilots) > shown:
            del found.autopilots[shown:], found.summaries[shown:]
            found.next_page_token = page_token([found.autopilots[-1].autopilot_id], query)
        return found

    async def UpdateAutopilot(
        self, request: pb.UpdateAutopilotRequest, context: Any
    ) -> pb.UpdateAutopilotResponse:
        """Change a rule."""
        after = await self._autopilots.update(current_actor(), edits.rule_edit(request))
        return pb.UpdateAutopilotResponse(autopilot=_shown(after))

    async def PauseAutopilot(
        self, request: pb.PauseAutopilotRequest, context: Any
    ) -> pb.PauseAutopilotResponse:
        """Take a rule out of force."""
        autopilot_id = parse.one_id("autopilot_id", request.autopilot_id)
        after = await self._autopilots.pause(current_actor(), autopilot_id, request.etag)
        return pb.PauseAutopilotResponse(autopilot=_shown(after))

    async def ResumeAutopilot(
        self, request: pb.ResumeAutopilotRequest, context: Any
    ) -> pb.ResumeAutopilotResponse:
        """Put a rule in force again."""
        autopilot_id = parse.one_id("autopilot_id", request.autopilot_id)
        after = await self._autopilots.resume(current_actor(), autopilot_id, request.etag)
        return pb.ResumeAutopilotResponse(autopilot=_shown(after))

    async def ArchiveAutopilot(
        self, request: pb.ArchiveAutopilotRequest, context: Any
    ) -> pb.ArchiveAutopilotResponse:
        """Take a rule out of force for good."""
        autopilot_id = parse.one_id("autopilot_id", request.autopilot_id)
        after = await self._autopilots.archive(current_actor(), autopilot_id, request.etag)
        return pb.ArchiveAutopilotResponse(autopilot=_shown(after))

    async def ListRuleVersions(
        self, request: pb.ListRuleVersionsRequest, context: Any
    ) -> pb.ListRuleVersionsResponse:
        """List what a rule has said."""
        autopilot_id = parse.one_id("autopilot_id", request.autopilot_id)
        query = ("ListRuleVersions", autopilot_id)
        page = read_page(request.page_size, request.page_token, query)
        before = None if page.after is None else int(str(page.after[0]))
        found = await self._reader.versions(current_actor(), autopilot_id, before, page.limit)
        versions = [messages.rule_version(each) for each in found]
        shown = versions[: min(page.size, fitting(each.ByteSize() for each in versions))]
        more = page_token([shown[-1].sequence], query) if len(found) > len(shown) else ""
        return pb.ListRuleVersionsResponse(rule_versions=shown, next_page_token=more)

    async def GetRuleVersion(
        self, request: pb.GetRuleVersionRequest, context: Any
    ) -> pb.GetRuleVersionResponse:
        """Read what a rule said."""
        version_id = parse.one_id("rule_version_id", request.rule_version_id)
        found = await self._reader.version(current_actor(), version_id)
        return pb.GetRuleVersionResponse(rule_version=messages.rule_version(found))

    async def AddCollaborator(
        self, request: pb.AddCollaboratorRequest, context: Any
    ) -> pb.AddCollaboratorResponse:
        """Let a member change a rule."""
        autopilot_id, user_id = parse.person(request.autopilot_id, request.user_id)
        made = await self._collaborators.add(current_actor(), autopilot_id, user_id)
        return pb.AddCollaboratorResponse(collaborator=messages.collaborator(made))

    async def RemoveCollaborator(
        self, request: pb.RemoveCollaboratorRequest, context: Any
    ) -> pb.RemoveCollaboratorResponse:
        """Let a member change a rule no longer."""
        autopilot_id, user_id = parse.person(request.autopilot_id, request.user_id)
        await self._collaborators.remove(current_actor(), autopilot_id, user_id)
        return pb.RemoveCollaboratorResponse()

    async def ListCollaborators(
        self, request: pb.ListCollaboratorsRequest, context: Any
    ) -> pb.ListCollaboratorsResponse:
        """List who was let in."""
        autopilot_id = parse.one_id("autopilot_id", request.autopilot_id)
        query = ("ListCollaborators", autopilot_id)
        page = read_page(request.page_size, request.page_token, query)
        after = None if page.after is None else str(page.after[0])
        found = await self._collaborators.page(current_actor(), autopilot_id, after, page.limit)
        shown = found[: page.size]
        more = page_token([shown[-1].user_id], query) if len(found) > page.size else ""
        return pb.ListCollaboratorsResponse(
            collaborators=[messages.collaborator(each) for each in shown], next_page_token=more
        )


def _shown(published: Published) -> rule_pb.Autopilot:
    return messages.autopilot(published.rule, published.subscribers)
