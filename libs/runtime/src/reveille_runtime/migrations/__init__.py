"""What a service's migrations are made of: one `.sql` file each, run whole, in one transaction.

A revision `versions/0001_init.py` names its predecessor and nothing else:

    from reveille_runtime.migrations import sql_revision

    revision, down_revision, upgrade = sql_revision(__file__, after=None)

and `versions/0001_init.sql` beside it holds the statements. There is no way down: what a release
adds, the next may stop using.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from alembic import op

# Alembic's version column takes 32 characters.
_STEM = re.compile(r"^\d{4}_[a-z0-9_]{1,27}$")


def sql_revision(file: str, *, after: str | None) -> tuple[str, str | None, Callable[[], None]]:
    """Make the three names that Alembic looks for, out of the file's own name."""
    script = Path(file).with_suffix(".sql")
    if not _STEM.match(script.stem):
        raise ValueError(f"{script.name}: a revision is named NNNN_what_it_does")

    def upgrade() -> None:
        run_script(script.read_text(encoding="utf-8"))

    return script.stem, after, upgrade


def run_script(sql: str) -> None:
    """Send many statements at once: the driver's prepared calls take only one each."""
    adapted: Any = op.get_bind().connection.dbapi_connection
    adapted.run_async(lambda raw: raw.execute(sql))
