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

    def may_grant(self, creator_user_id: str) -> bool:
        """Tell whether the caller may let others change a rule: its creator, or a manager."""
        if self.manages:
            return True
        return self.role is not None and self.user_id == creator_user_id

    def may_write(self, creator_user_id: str, *, collaborates: bool) -> bool:
        """Tell whether the caller may change a rule: also whoever was let in, while a member."""
        return self.may_grant(creator_user_id) or (self.role is not None and collaborates)

    def may_run(self, creator_user_id: str, *, collaborates: bool) -> bool:
        """Tell whether the caller may run a rule now; services are trusted to ask for a reason."""
        return self.service or self.may_write(creator_user_id, collaborates=collaborates)

    def started(self, originator_user_id: str | None) -> bool:
        """Tell whether the caller is the member who started a run."""
        return self.role is not None and self.user_id == originator_user_id
