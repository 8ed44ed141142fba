"""Titles of created issues: plain text in which only `{{date}}` is replaced."""

from __future__ import annotations

import re
from datetime import datetime

from reveille_cron import CronError, render_local, zone

MAX_TITLE = 200
_TOKEN = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_DATE = "date"


def unknown_token(template: str) -> str | None:
    """Return the first placeholder that is not `{{date}}`, as written; None when all are known."""
    for match in _TOKEN.finditer(template):
        if match[1].strip() != _DATE:
            return match[0]
    return None


def render_title(template: str, title: str, moment: datetime, time_zone: str) -> str:
    """Render the title of a run: the date is the one `moment` has in the trigger's zone."""
    if not template:
        return title
    date = render_local(moment, zone(_usable(time_zone)))
    return _TOKEN.sub(lambda match: date if match[1].strip() == _DATE else match[0], template)[
        :MAX_TITLE
    ]


def _usable(time_zone: str) -> str:
    """Fall back to UTC: a name that a newer tz edition dropped must not stop a run."""
    try:
        zone(time_zone)
    except CronError:
        return "UTC"
    return time_zone
