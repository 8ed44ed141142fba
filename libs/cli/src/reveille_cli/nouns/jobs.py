"""`reveille jobs`: the kinds of work that fall due."""

from __future__ import annotations

from reveille_cli.apis import SCHEDULER
from reveille_cli.declare import Noun, Param, Verb
from reveille_cli.nouns.shared import the

_NAME = the("name", "The job.")

NOUN = Noun(
    name="jobs",
    help="Jobs: kinds of work that fall due by the clock. For operators.",
    api=SCHEDULER,
    verbs=(
        Verb("list", "List the jobs by name.", "ListJobs", (), shows="jobs"),
        Verb("get", "Show a job.", "GetJob", (_NAME,), shows="job"),
        Verb(
            "pause",
            "Stop planning and retries of a job; what runs goes on.",
            "PauseJob",
            (_NAME, Param("note", "Why, for whoever asks.", required=True)),
            shows="job",
        ),
        Verb(
            "resume",
            "End a pause; what was missed is caught up by the job's rules.",
            "ResumeJob",
            (_NAME,),
            shows="job",
        ),
    ),
)
