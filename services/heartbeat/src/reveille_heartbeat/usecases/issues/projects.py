"""CreateProject and UpdateProject: what issues are gathered under."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from reveille_heartbeat.domain.projects import Project
from reveille_heartbeat.store.issue_rows import to_project
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.usecases.etags import changed_meanwhile, require_etag
from reveille_heartbeat.usecases.listing import require_known
from reveille_heartbeat.usecases.repeats import Repeatable, made, made_before
from reveille_heartbeat.usecases.visible import require_visible
from reveille_runtime.access import Actor
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.errors import AlreadyExists


@dataclass(frozen=True, slots=True)
class NewProject:
    """A project to create."""

    project_id: UUID
    workspace_id: UUID
    name: str
    description: str
    repeatable: Repeatable | None


class Projects:
    """Keeps projects."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def create(self, new: NewProject) -> Project:
        """Create it, or give what the same request made before.

        Raises:
            NotFound: the workspace is not known here. AlreadyExists: the name is taken.
            InvalidArgument: the request id was used for another request.
        """

        async def create(tx: Tx) -> Project:
            known = await made_before(tx, new.repeatable)
            if known is not None:
                return to_project((await tx.fetch(Q["find_projects"], [known]))[0])
            await require_known(tx, new.workspace_id, [])
            row = await tx.fetchrow(
                Q["insert_project"],
                new.project_id,
                new.workspace_id,
                new.name,
                new.description,
            )
            if row is None:
                raise _taken(new.name)
            await made(tx, new.repeatable, new.project_id)
            return to_project(row)

        return await retrying_transaction(self._db, create, repeatable=new.repeatable is not None)

    async def update(
        self, actor: Actor, project_id: UUID, values: Mapping[str, Any], etag: str
    ) -> Project:
        """Change what is named; values that it has already change nothing.

        Raises:
            NotFound: the caller cannot see it. Aborted: it changed since the caller read it.
            AlreadyExists: the name is taken.
        """

        async def update(tx: Tx) -> Project:
            rows = await tx.fetch(Q["find_projects"], [project_id])
            found = to_project(rows[0]) if rows else None
            project = require_visible(actor, found, "project", project_id)
            require_etag(etag, project, f"project {project.name}")
            wanted = replace(project, **values)
            if wanted == project:
                return project
            row = await tx.fetchrow(
                Q["update_project"],
                project_id,
                project.revision,
                wanted.name,
                wanted.description,
                wanted.state.value,
            )
            return to_project(row) if row is not None else await _refused(tx, project, wanted)

        return await retrying_transaction(self._db, update)


async def _refused(tx: Tx, project: Project, wanted: Project) -> Project:
    """Say why the compare-and-set touched no row."""
    now = to_project((await tx.fetch(Q["find_projects"], [project.project_id]))[0])
    if now.revision != project.revision:
        raise changed_meanwhile(now, f"project {project.name}")
    raise _taken(wanted.name)


def _taken(name: str) -> AlreadyExists:
    return AlreadyExists(
        "ALREADY_EXISTS", f"the workspace has a project called {name}", {"name": name}
    )
