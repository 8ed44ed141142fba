"""The token that an agent calls us with: a function of its run, so it is stored nowhere."""

from __future__ import annotations

from reveille_heartbeat.domain.values import Run
from reveille_runtime.access import CallerKind
from reveille_runtime.tokens import TokenMinter

# After the end the token still names its run; what it may do then, the writes decide.
_AFTERWARDS = 600.0
_LONGEST = 30 * 86_400.0


class RunTokens:
    """Mints run tokens. Signatures are deterministic: the same run gets the same token again."""

    def __init__(self, minter: TokenMinter) -> None:
        self._minter = minter

    def token(self, run: Run) -> str:
        """Give a run's token."""
        # The id holds the time at which it was made, by the clock that tokens are judged by.
        made = (run.run_id.int >> 80) / 1000
        running = _LONGEST
        if run.deadline_at is not None and run.started_at is not None:
            running = (run.deadline_at - run.started_at).total_seconds()
        waiting = (run.start_by - run.created_at).total_seconds()
        return self._minter.mint(
            CallerKind.RUN,
            str(run.agent_id),
            lifetime=waiting + running + _AFTERWARDS,
            workspace_id=run.workspace_id,
            run_id=run.run_id,
            now=made,
        )
