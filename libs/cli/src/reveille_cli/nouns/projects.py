"""`reveille projects`: what issues are gathered under."""

from __future__ import annotations

from reveille_cli.apis import ISSUES
from reveille_cli.declare import Noun, Param, Verb
from reveille_cli.names import PROJECT
from reveille_cli.nouns.shared import ETAG, REQUEST_ID, WORKSPACE, the

NOUN = Noun(
    name="projects",
    help="Projects: what issues are gathered under.",
    api=ISSUES,
    verbs=(
        Verb(
            "create",
            "Create a project.",
            "CreateProject",
            (
                Param("name", "The name, unique in the workspace.", argument=True),
                WORKSPACE,
                Param("description", "What it is for.", file=True),
                REQUEST_ID,
            ),
            shows="project",
        ),
        Verb("list", "List projects by name.", "ListProjects", (WORKSPACE,), shows="projects"),
        Verb(
            "get",
            "Show a project.",
            "GetProject",
            (the("project_id", "The project.", PROJECT),),
            shows="project",
        ),
        Verb(
            "update",
            "Change a project; what is not named stays, and an empty value clears.",
            "UpdateProject",
            (
                the("project.project_id", "The project.", PROJECT),
                Param("project.name", "The name.", flag="--name"),
                Param("project.description", "What it is for.", flag="--description", file=True),
                Param("project.state", "Whether work is done for it.", flag="--state"),
                Param("project.etag", ETAG.help, flag="--etag"),
            ),
            shows="project",
            mask="project",
            read="GetProject",
        ),
    ),
)
