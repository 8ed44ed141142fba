"""`reveille issues`: the work that agents and people share."""

from __future__ import annotations

from reveille_cli.apis import ISSUES
from reveille_cli.declare import Noun, Param, Verb
from reveille_cli.names import AGENT, ISSUE
from reveille_cli.nouns.shared import ETAG, REQUEST_ID, WORKSPACE, in_states, only_of, the

_ID = the("issue_id", "The issue.", ISSUE)

NOUN = Noun(
    name="issues",
    help="Issues: pieces of work that agents and people share.",
    api=ISSUES,
    verbs=(
        Verb(
            "create",
            "Create an issue; an agent it is assigned to is woken.",
            "CreateIssue",
            (
                Param("title", "The title.", argument=True),
                WORKSPACE,
                Param("description", "What is to be done.", file=True),
                Param(
                    "assignee_agent_id",
                    "The agent it is assigned to.",
                    flag="--agent",
                    names=AGENT,
                ),
                Param("priority", "How urgent it is."),
                REQUEST_ID,
            ),
            main="issue",
        ),
        Verb(
            "list",
            "List issues, newest first.",
            "ListIssues",
            (
                WORKSPACE,
                in_states("statuses", "--status"),
                only_of("assignee_agent_id", "--agent", "agent", AGENT),
            ),
            shows="issues",
        ),
        Verb("get", "Show an issue.", "GetIssue", (_ID,), shows="issue"),
        Verb(
            "move",
            "Move an issue to another status.",
            "UpdateIssue",
            (_ID, Param("status", "The status to move to.", argument=True), ETAG),
            shows="issue",
        ),
    ),
)
