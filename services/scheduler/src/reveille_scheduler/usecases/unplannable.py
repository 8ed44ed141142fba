"""Say why a scope cannot be planned, so that it alone stops."""

from __future__ import annotations

from reveille_cron import CronError
from reveille_runtime import logs
from reveille_scheduler.domain.occurrence import clipped
from reveille_scheduler.domain.scope import Scope

_log = logs.get_logger(__name__)


def why_not(scope: Scope, error: Exception) -> str:
    """Give the reason that is kept with the scope; what no rule should cause is logged as well."""
    if isinstance(error, CronError):
        return str(error)
    _log.error(
        "A scope cannot be planned; it is left out until its rule or its job is changed.",
        action="scope.not_plannable",
        job=scope.job_name,
        scope_kind=scope.kind,
        scope_id=scope.id,
        exc_info=error,
    )
    return clipped(f"{type(error).__name__}: {error}")
