"""Triggers: created, read, deleted, and given a new address."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille_autopilot.domain.accepting import MAX_TRIGGERS
from reveille_autopilot.domain.editing import TriggerEdit, sets_off_otherwise
from reveille_autopilot.domain.models import Autopilot, ScheduleConfig, Trigger, WebhookConfig
from reveille_autopilot.domain.states import Change, TriggerKind
from reveille_autopilot.store import autopilots, triggers
from reveille_autopilot.usecases import messages
from reveille_autopilot.usecases.hooks import Hooks
from reveille_autopilot.usecases.publish import locked_for_edit, publish, require_etag, stale
from reveille_autopilot.usecases.relays import Relays
from reveille_autopilot.usecases.schedules import check_schedule
from reveille_autopilot.usecases.standing import not_found, readable_autopilot, readable_trigger
from reveille_runtime.access import Actor
from reveille_runtime.crash import crash_point
from reveille_runtime.crypto import Sealer
from reveille_runtime.db import Database, Tx
from reveille_runtime.errors import FailedPrecondition, InvalidArgument
from reveille_runtime.ids import new_id
from reveille_runtime.requests import once
from reveille_runtime.validation import Violations

TOKEN_PREFIX = "awt_"  # noqa: S105 - what every address begins with
_TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class NewTrigger:
    """A trigger to create."""

    autopilot_id: UUID
    label: str
    enabled: bool
    config: ScheduleConfig | WebhookConfig


@dataclass(frozen=True, slots=True)
class ShownTrigger:
    """A trigger with what its display needs."""

    trigger: Trigger
    rule: Autopilot
    now: datetime

    def message(self) -> rule_pb.Trigger:
        """Show it."""
        return messages.trigger(self.trigger, self.rule, self.now)


@dataclass(frozen=True, slots=True)
class _Address:
    """A webhook's address: the plain one is shown once and never kept."""

    token: str

    @classmethod
    def mint(cls) -> _Address:
        return cls(TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES))

    @property
    def sha256(self) -> bytes:
        return hashlib.sha256(self.token.encode()).digest()

    @property
    def path(self) -> str:
        return f"/hooks/{self.token}"


class Triggers:
    """Publishes triggers and has the scheduler or the gateway know them."""

    def __init__(
        self,
        db: Database,
        relays: Relays,
        hooks: Hooks,
        sealer: Sealer,
        public_url: str | None,
    ) -> None:
        self._db = db
        self._hooks = hooks
        self._relays = relays
        self._sealer = sealer
        self._public_url = public_url

    async def create(
        self, actor: Actor, new: NewTrigger, request: pb.CreateTriggerRequest
    ) -> pb.CreateTriggerResponse:
        """Create a trigger; of a webhook, the answer is the only place that shows its address.

        Raises:
            InvalidArgument: the gateway does not know the sender, or refuses its options; or the
                rule has as many triggers as it may have.
        """
        webhook = isinstance(new.config, WebhookConfig)
        if isinstance(new.config, WebhookConfig):
            await self._hooks.require_possible(new.config.provider, new.config.options)

        async def make(tx: Tx) -> pb.CreateTriggerResponse:
            rule, editor, now = await locked_for_edit(tx, actor, new.autopilot_id)
            # After the lock: of two who add the last one that fits, the second sees the first's.
            if await triggers.count_live(tx, rule.id) >= MAX_TRIGGERS:
                raise InvalidArgument.of(
                    "autopilot_id", f"has {MAX_TRIGGERS} triggers already, the most of a rule"
                )
            if isinstance(new.config, ScheduleConfig):
                _require_schedule(new.config, now)
            address = _Address.mint() if webhook else None
            trigger = Trigger(
                id=new_id(),
                autopilot_id=rule.id,
                workspace_id=rule.workspace_id,
                enabled=new.enabled,
                label=new.label,
                config=new.config,
                publisher_user_id=editor,
                revision=1,
                synced_revision=0,
                effective_from=now,
                created_at=now,
            )
            await triggers.insert(tx, trigger, None if address is None else address.sha256)
            after = await publish(
                tx, rule, Change.TRIGGER_CREATED, editor, now, trigger_id=trigger.id
            )
            return pb.CreateTriggerResponse(
                trigger=messages.trigger(trigger, after, now),
                hook_path=address.path if address else "",
                hook_url=self._url(address),
            )

        async with self._db.transaction() as tx:
            answer = await once(
                tx,
                principal=actor.principal,
                method="CreateTrigger",
                request=request,
                response=pb.CreateTriggerResponse,
                make=lambda: make(tx),
                credential_sealer=self._sealer if webhook else None,
            )
        crash_point("autopilot.publish.after_commit")
        answer.endpoint_ready = await self._push(
            UUID(answer.trigger.trigger_id),
            TriggerKind.WEBHOOK if webhook else TriggerKind.SCHEDULE,
        )
        answer.trigger.synced = answer.endpoint_ready
        return answer

    async def update(self, actor: Actor, edit: TriggerEdit) -> ShownTrigger:
        """Change what an edit names; the editor answers for what sets the rule off otherwise.

        Raises:
            InvalidArgument: the gateway refuses the options of a webhook.
        """
        if "options" in edit.config:
            before = (await self.get(actor, edit.trigger_id)).trigger.config
            if isinstance(before, WebhookConfig):
                await self._hooks.require_possible(before.provider, edit.config["options"])
        async with self._db.transaction() as tx:
            seen, _ = await readable_trigger(tx, actor, edit.trigger_id)
            rule, editor, now = await locked_for_edit(tx, actor, seen.autopilot_id)
            trigger = await triggers.get(tx, edit.trigger_id)
            if trigger is None or trigger.deleted_at is not None:
                raise not_found("trigger", edit.trigger_id)
            require_etag(edit.etag, trigger.etag, trigger_id=trigger.id)
            _require_kind(edit, trigger)
            after = edit.applied(trigger, now)
            # Also when it is switched on: a moment that has passed since would never come.
            if isinstance(after.config, ScheduleConfig) and (
                after.config != trigger.config or (after.enabled and not trigger.enabled)
            ):
                _require_schedule(after.config, now)
            substantive = sets_off_otherwise(trigger, after)
            if substantive or after.label != trigger.label:
                if not await triggers.update(tx, trigger, after):
                    raise stale("another revision", trigger_id=trigger.id)
                if substantive:
                    rule = await publish(
                        tx, rule, Change.TRIGGER_UPDATED, editor, now, trigger_id=trigger.id
                    )
        crash_point("autopilot.publish.after_commit")
        await self._push(edit.trigger_id, seen.kind)
        return await self.get(actor, edit.trigger_id)

    async def get(self, actor: Actor, trigger_id: UUID) -> ShownTrigger:
        """Read a trigger; a deleted one does not exist any more."""
        async with self._db.session() as tx:
            trigger, _ = await readable_trigger(tx, actor, trigger_id)
            rule = await autopilots.get(tx, trigger.autopilot_id)
            if rule is None or trigger.deleted_at is not None:
                raise not_found("trigger", trigger_id)
            return ShownTrigger(trigger, rule, await autopilots.now(tx))

    async def page(
        self, actor: Actor, autopilot_id: UUID, after: UUID | None, limit: int
    ) -> Sequence[ShownTrigger]:
        """List the triggers of a rule."""
        async with self._db.session() as tx:
            rule, _ = await readable_autopilot(tx, actor, autopilot_id)
            now = await autopilots.now(tx)
            found = await triggers.page(tx, autopilot_id, after, limit)
        return [ShownTrigger(trigger, rule, now) for trigger in found]

    async def delete(self, actor: Actor, trigger_id: UUID) -> None:
        """Delete a trigger; its runs stay, and deleting it again changes nothing."""
        async with self._db.transaction() as tx:
            trigger, _ = await readable_trigger(tx, actor, trigger_id)
            rule, editor, now = await locked_for_edit(tx, actor, trigger.autopilot_id)
            if not await triggers.delete(tx, trigger_id, now):
                # It was deleted before, or while we waited for the rule.
                return
            await publish(tx, rule, Change.TRIGGER_DELETED, editor, now)
        crash_point("autopilot.publish.after_commit")
        await self._push(trigger_id, trigger.kind)

    async def rotate(
        self,
        actor: Actor,
        trigger_id: UUID,
        grace: timedelta,
        request: pb.RotateWebhookTokenRequest,
    ) -> pb.RotateWebhookTokenResponse:
        """Give a webhook a new address; the old one goes on for `grace`."""

        async def make(tx: Tx) -> pb.RotateWebhookTokenResponse:
            rule, editor, now, trigger = await lock_webhook(tx, actor, trigger_id)
            address = _Address.mint()
            expires = now + grace if grace else None
            if not await triggers.rotate(tx, trigger_id, address.sha256, expires):
                raise not_found("trigger", trigger_id)
            after = await publish(
                tx, rule, Change.TOKEN_ROTATED, editor, now, trigger_id=trigger.id
            )
            rotated = await triggers.get(tx, trigger_id) or trigger
            return pb.RotateWebhookTokenResponse(
                trigger=messages.trigger(rotated, after, now),
                hook_path=address.path,
                hook_url=self._url(address),
            )

        async with self._db.transaction() as tx:
            answer = await once(
                tx,
                principal=actor.principal,
                method="RotateWebhookToken",
                request=request,
                response=pb.RotateWebhookTokenResponse,
                make=lambda: make(tx),
                credential_sealer=self._sealer,
            )
        crash_point("autopilot.publish.after_commit")
        answer.endpoint_ready = await self._push(trigger_id, TriggerKind.WEBHOOK)
        answer.trigger.synced = answer.endpoint_ready
        return answer

    def _url(self, address: _Address | None) -> str:
        if address is None or self._public_url is None:
            return ""
        return self._public_url + address.path

    async def _push(self, trigger_id: UUID, kind: TriggerKind) -> bool:
        if kind is TriggerKind.WEBHOOK:
            return await self._relays.endpoints.push_now(trigger_id)
        return await self._relays.scopes.push_now(trigger_id)


def _require_schedule(config: ScheduleConfig, now: datetime) -> None:
    found = Violations()
    check_schedule(found, config, now)
    found.check()


def _require_kind(edit: TriggerEdit, trigger: Trigger) -> None:
    """Refuse settings that triggers of this kind do not have."""
    known = set(type(trigger.config).__dataclass_fields__)
    found = Violations()
    for name in sorted(edit.config.keys() - known):
        other = "webhook" if trigger.kind is TriggerKind.SCHEDULE else "schedule"
        found.add(f"{other}.{name}", f"a {trigger.kind} trigger has no such setting")
    found.check()


async def lock_webhook(
    tx: Tx, actor: Actor, trigger_id: UUID
) -> tuple[Autopilot, str, datetime, Trigger]:
    """Lock the rule of a live webhook trigger for one of its writers."""
    seen, _ = await readable_trigger(tx, actor, trigger_id)
    rule, editor, now = await locked_for_edit(tx, actor, seen.autopilot_id)
    return rule, editor, now, await readable_webhook(tx, actor, trigger_id)


async def readable_webhook(tx: Tx, actor: Actor, trigger_id: UUID) -> Trigger:
    """Read a live webhook trigger."""
    trigger, _ = await readable_trigger(tx, actor, trigger_id)
    if trigger.deleted_at is not None:
        raise not_found("trigger", trigger_id)
    if trigger.kind is not TriggerKind.WEBHOOK:
        raise FailedPrecondition(
            "WRONG_STATE",
            "this trigger is no webhook: it has neither an address nor signing secrets",
            {"trigger_id": str(trigger_id), "kind": trigger.kind.value},
        )
    return trigger
