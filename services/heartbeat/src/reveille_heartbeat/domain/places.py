"""Where a process lives, and who executes: two names that tell what can be judged from where."""

from __future__ import annotations

from dataclasses import dataclass

from reveille_heartbeat.domain.values import ProcessIdentity


@dataclass(frozen=True, slots=True)
class Place:
    """One boot of a machine, one PID namespace in it, one spool.

    Only an executor in the same place can see a run's process; one with the same spool can still
    read how a process ended.
    """

    boot_id: str
    pid_namespace: str
    spool_id: str

    def __str__(self) -> str:
        return f"{self.boot_id}/{self.pid_namespace}/{self.spool_id}"

    @classmethod
    def parse(cls, text: str) -> Place | None:
        """Read what a row holds."""
        parts = text.split("/")
        return cls(*parts) if len(parts) == 3 else None

    def shares_spool(self, text: str) -> bool:
        """Tell whether the files of a run that lived at `text` can be read here."""
        other = Place.parse(text)
        return other is not None and other.spool_id == self.spool_id


@dataclass(frozen=True, slots=True)
class Executor:
    """What executes runs: usually one per process of heartbeat."""

    host: str
    process: ProcessIdentity
    # Tells apart executors of one process.
    mark: str
    place: Place

    @property
    def executor_id(self) -> str:
        """The name in rows; it names the process, so that its death can be seen in its place."""
        return f"{self.host}/{self.process.pid}/{self.process.start_ticks}/{self.mark}"


def process_of(executor_id: str) -> ProcessIdentity | None:
    """Read the process out of an executor's name."""
    parts = executor_id.rsplit("/", 3)
    if len(parts) != 4 or not (parts[1].isdigit() and parts[2].isdigit()):
        return None
    return ProcessIdentity(int(parts[1]), int(parts[2]))
