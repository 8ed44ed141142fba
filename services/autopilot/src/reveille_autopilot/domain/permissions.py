"""Who may see and change what in a workspace, by the membership rows."""

from __future__ import annotations

from dataclasses import dataclass

from reveille_autopilot.domain.states import MemberRole


@dataclass(frozen=True, slots=True)
class Standing:
    """What a caller is in one workspace."""

    user_id: str | None
    role: MemberRole | None
    operator: bool = False
    service: bool = False

    @property
    def belongs(self) -> bool:
        """Tell whether the workspace exists for this caller at all."""
        return self.service or self.operator or self.role is not None

    @property
    def manages(self) -> bool:
        """Tell whether the caller may change what belongs to others; an operator always may."""
        return self.operator or (self.role is not None and self.role.manages)

    def may_write(self, creator_user_id: str) -> bool:
        """Tell whether the caller may change a rule: its creator while a member, or a manager."""
        if self.manages:
            return True
        return self.role is not None and self.user_id == creator_user_id

    def may_run(self, creator_user_id: str) -> bool:
        """Tell whether the caller may run a rule now; services are trusted to ask for a reason."""
        return self.service or self.may_write(creator_user_id)

    def may_cancel(self, creator_user_id: str, originator_user_id: str | None) -> bool:
        """Tell whether the caller may cancel a run: whoever may run the rule, or started this."""
        if self.may_run(creator_user_id):
            return True
        return self.role is not None and self.user_id == originator_user_id
