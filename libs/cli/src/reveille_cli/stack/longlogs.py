"""Keeps the logs of a stack that runs for long from filling the disk."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress

from reveille_cli.stack.datadir import DataDir

# With the copy behind it, as much as Docker keeps of each container.
LONGEST = 50 * 1024 * 1024
# Between two looks, in seconds.
PAUSE = 1.0


def cut_long_logs(data_dir: DataDir, longest: int = LONGEST) -> None:
    """Move what a log of more than `longest` bytes holds behind it, to its `.log.1`.

    Copied and cut, not renamed: the processes go on writing to the file that they were given. What
    one says in the moment between is lost.
    """
    for log in (*data_dir.logs.glob("*.log"), data_dir.postgres_log):
        # One that is not there is not long; on a full disk nothing can be kept, and the next look
        # tries again.
        with suppress(OSError):
            if log.stat().st_size > longest:
                shutil.copy(log, log.with_suffix(".log.1"))
                os.truncate(log, 0)
