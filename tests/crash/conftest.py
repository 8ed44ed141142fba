"""Random kills and soaks take minutes: `make crash` asks for them, `make test` does not."""

from __future__ import annotations

import os

ASKED = "REVEILLE_TEST_CRASH"
collect_ignore_glob = [] if os.environ.get(ASKED) else ["*"]
