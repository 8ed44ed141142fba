"""`reveille issues`: the work that agents and people share."""

from __future__ import annotations

from typing import Any

from reveille_cli.apis import ISSUES
from reveille_cli.declare import FLAT, Noun, Param, Verb
from reveille_cli.names import AGENT, ISSUE, PROJECT, SQUAD
from reveille_cli.nouns.shared import ETAG, REQUEST_ID, WORKSPACE, in_states, only_of, the

_ID = the("issue_id", "The issue.", ISSUE)


def _subscribers(request: Any, users: list[str], _: str) -> None:
    """An empty one alone leaves nobody."""
    request.subscriber_user_ids.extend(user for user in users if user)


_PARTICULARS = (
    Param("description", "What is to be done.", file=True),
    Param(
        "assignee_agent_id",
        "The agent it is assigned to.",
        flag="--agent",
        names=AGENT,
        clears=True,
    ),
    Param("assignee_user_id", "The person it is assigned to.", flag="--user"),
    Param(
        "reviewer_agent_id",
        "The agent that judges it.",
        flag="--reviewer",
        names=AGENT,
        clears=True,
    ),
    Param("reviewer_user_id", "The person who judges it.", flag="--reviewing-user"),
    Param("project_id", "The project.", flag="--project", names=PROJECT, clears=True),
    Param(
        "parent_issue_id", "The issue it is a part of.", flag="--parent", names=ISSUE, clears=True
    ),
    Param("responsible_user_id", "The person who answers for it.", flag="--responsible"),
    Param("priority", "How urgent it is."),
    Param(
        "subscriber_user_ids",
        "Somebody who wants to hear of it; may be repeated.",
        flag="--subscriber",
        many=True,
        apply=_subscribers,
    ),
)
_RELATION = (
    the("issue_id", "The issue that is blocked.", ISSUE),
    the("blocker_issue_id", "The issue that blocks it.", ISSUE),
)

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
                *_PARTICULARS,
                Param(
                    "assignee_squad_id",
                    "The squad whose leader gets it.",
                    flag="--squad",
                    names=SQUAD,
                ),
                Param(
                    "blocker_issue_ids",
                    "An issue that blocks it; may be repeated.",
                    flag="--blocked-by",
                    names=ISSUE,
                ),
                Param("status", "Where it begins: to do when left out, or the backlog."),
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
                only_of("assignee_user_id", "--user", "person"),
                only_of("project_id", "--project", "project", PROJECT),
                Param("parent_issue_id", "Only parts of this issue.", flag="--parent", names=ISSUE),
            ),
            shows="issues",
        ),
        Verb("get", "Show an issue.", "GetIssue", (_ID,), shows="issue"),
        Verb(
            "update",
            "Change an issue; what is not named stays, and an empty value clears.",
            "UpdateIssue",
            (_ID, Param("title", "The title."), *_PARTICULARS, ETAG),
            shows="issue",
            mask=FLAT,
            read="GetIssue",
        ),
        Verb(
            "move",
            "Move an issue to another status.",
            "UpdateIssue",
            (_ID, Param("status", "The status to move to.", argument=True), ETAG),
            shows="issue",
        ),
        Verb(
            "delete",
            "Remove an issue with all that waits for it or works on it.",
            "DeleteIssue",
            (_ID, ETAG),
            note="Deleted.",
        ),
        Verb(
            "comment",
            "Say something about an issue; its agent, and those mentioned, are woken.",
            "AddComment",
            (
                _ID,
                Param("body", "What to say.", flag="--body", file=True, required=True),
                Param(
                    "mentioned_agent_ids",
                    "An agent to wake beside the assignee; may be repeated.",
                    flag="--mention",
                    names=AGENT,
                ),
                REQUEST_ID,
            ),
            main="comment",
        ),
        Verb(
            "comments",
            "List what was said about an issue, oldest first.",
            "ListComments",
            (_ID,),
            shows="comments",
        ),
        Verb(
            "checkout",
            "Make an attempt the owner of an issue, and the issue in progress.",
            "CheckoutIssue",
            (
                _ID,
                Param("run_id", "The attempt.", flag="--run", required=True),
                Param(
                    "expected_statuses",
                    "A status that it may have; may be repeated.",
                    flag="--expect",
                ),
            ),
            shows="issue",
        ),
        Verb(
            "release",
            "Give an issue back: nobody is assigned, and it is to do again.",
            "ReleaseIssue",
            (_ID, Param("force", "Take it from whoever owns it; for administrators.")),
            shows="issue",
        ),
        Verb(
            "block",
            "Make one issue wait for another.",
            "AddRelation",
            _RELATION,
            shows="issue",
        ),
        Verb(
            "unblock",
            "Have one issue wait for another no more.",
            "RemoveRelation",
            _RELATION,
            shows="issue",
        ),
        Verb(
            "hold",
            "Hold an issue and everything below it.",
            "HoldIssueTree",
            (
                the("root_issue_id", "The issue at the top.", ISSUE),
                Param("mode", "What to do with them; pause when left out."),
                Param("reason", "Why, in words."),
                Param("let_runs_finish", "Leave alone what is at work."),
            ),
            main="hold",
        ),
        Verb(
            "unhold",
            "Let a held tree go on; a cancelled one gets back what nobody has changed since.",
            "ReleaseIssueTree",
            (the("root_issue_id", "The issue at the top.", ISSUE),),
            shows="hold",
        ),
    ),
)
