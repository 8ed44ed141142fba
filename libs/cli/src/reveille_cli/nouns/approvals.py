"""`reveille approvals`: decisions that agents and people ask for."""

from __future__ import annotations

from reveille_cli.apis import ISSUES
from reveille_cli.declare import Noun, Param, Verb
from reveille_cli.names import ISSUE
from reveille_cli.nouns.shared import ETAG, REQUEST_ID, WORKSPACE, in_states, the

NOUN = Noun(
    name="approvals",
    help="Approvals: decisions that agents and people ask for.",
    api=ISSUES,
    verbs=(
        Verb(
            "request",
            "Ask for a decision.",
            "RequestApproval",
            (
                Param("title", "What is asked.", argument=True),
                WORKSPACE,
                Param("issue_id", "The issue it is about.", flag="--issue", names=ISSUE),
                Param("description", "The particulars.", file=True),
                REQUEST_ID,
            ),
            shows="approval",
        ),
        Verb(
            "list",
            "List approvals, newest first.",
            "ListApprovals",
            (
                WORKSPACE,
                in_states("statuses", "--status"),
                Param("issue_id", "Only about this issue.", flag="--issue", names=ISSUE),
            ),
            shows="approvals",
        ),
        Verb(
            "resolve",
            "Decide; the agent that asked is woken.",
            "ResolveApproval",
            (
                the("approval_id", "The approval."),
                Param("status", "The decision.", argument=True),
                Param("note", "What to add.", file=True),
                ETAG,
            ),
            main="approval",
        ),
    ),
)
