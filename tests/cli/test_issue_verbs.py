"""Verbs of issues, approvals and projects: the requests that command lines stand for."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass

from reveille.heartbeat.v1 import issue_pb2
from reveille_cli.apis import ISSUES

from .conftest import Answer, Desk

W, A, B, P, I1, I2 = (f"0197f3a0-0000-7000-8000-00000000000{digit}" for digit in range(1, 7))

CASES: list[tuple[str, str, dict[str, Any]]] = [
    (
        (
            f"issues create Fix -w {W} --agent {A} --parent ABC-1 --blocked-by ABC-2"
            f" --blocked-by {I1} --reviewer {B} --project {P} --subscriber ann --subscriber bob"
            " --status backlog --responsible rita"
        ),
        "CreateIssue",
        {
            "title": "Fix",
            "workspace_id": W,
            "assignee_agent_id": A,
            "parent_issue_id": "ABC-1",
            "blocker_issue_ids": ["ABC-2", I1],
            "reviewer_agent_id": B,
            "project_id": P,
            "subscriber_user_ids": ["ann", "bob"],
            "status": "ISSUE_STATUS_BACKLOG",
            "responsible_user_id": "rita",
        },
    ),
    (
        f"issues list -w {W} --user ann --project {P} --parent abc-1",
        "ListIssues",
        {
            "workspace_id": W,
            "assignee_user_id": "ann",
            "project_id": P,
            "parent_issue_id": "abc-1",
            "page_size": 50,
        },
    ),
    ("issues get ABC-1", "GetIssue", {"issue_id": "ABC-1"}),
    (
        "issues update ABC-1 --title Mend --priority low --user ann --subscriber ann --etag 7",
        "UpdateIssue",
        {
            "issue_id": "ABC-1",
            "title": "Mend",
            "priority": "ISSUE_PRIORITY_LOW",
            "assignee_user_id": "ann",
            "subscriber_user_ids": ["ann"],
            "etag": "7",
            "update_mask": "title,assigneeUserId,priority,subscriberUserIds",
        },
    ),
    ("issues delete ABC-1 --etag 7", "DeleteIssue", {"issue_id": "ABC-1", "etag": "7"}),
    (
        f"issues comment ABC-1 --body Look --mention {A} --request-id r1",
        "AddComment",
        {"issue_id": "ABC-1", "body": "Look", "mentioned_agent_ids": [A], "request_id": "r1"},
    ),
    ("issues comments ABC-1", "ListComments", {"issue_id": "ABC-1", "page_size": 50}),
    (
        "issues checkout ABC-1 --run r1 --expect todo --expect in_review",
        "CheckoutIssue",
        {
            "issue_id": "ABC-1",
            "run_id": "r1",
            "expected_statuses": ["ISSUE_STATUS_TODO", "ISSUE_STATUS_IN_REVIEW"],
        },
    ),
    ("issues release ABC-1 --force", "ReleaseIssue", {"issue_id": "ABC-1", "force": True}),
    (
        f"issues block ABC-1 {I2}",
        "AddRelation",
        {"issue_id": "ABC-1", "blocker_issue_id": I2},
    ),
    (
        "issues unblock ABC-1 ABC-2",
        "RemoveRelation",
        {"issue_id": "ABC-1", "blocker_issue_id": "ABC-2"},
    ),
    (
        "issues hold ABC-1 --mode cancel --reason enough --let-runs-finish",
        "HoldIssueTree",
        {
            "root_issue_id": "ABC-1",
            "mode": "HOLD_MODE_CANCEL",
            "reason": "enough",
            "let_runs_finish": True,
        },
    ),
    ("issues unhold ABC-1", "ReleaseIssueTree", {"root_issue_id": "ABC-1"}),
    (
        f"approvals request Deploy? -w {W} --issue ABC-1 --description soon",
        "RequestApproval",
        {
            "title": "Deploy?",
            "workspace_id": W,
            "issue_id": "ABC-1",
            "description": "soon",
        },
    ),
    (
        f"approvals list -w {W} --status pending --issue ABC-1",
        "ListApprovals",
        {
            "workspace_id": W,
            "statuses": ["APPROVAL_STATUS_PENDING"],
            "issue_id": "ABC-1",
            "page_size": 50,
        },
    ),
    (
        "approvals resolve a1 approved --note go --etag 1",
        "ResolveApproval",
        {"approval_id": "a1", "status": "APPROVAL_STATUS_APPROVED", "note": "go", "etag": "1"},
    ),
    (
        f"projects create Alpha -w {W} --description first",
        "CreateProject",
        {"name": "Alpha", "workspace_id": W, "description": "first"},
    ),
    (f"projects list -w {W}", "ListProjects", {"workspace_id": W, "page_size": 50}),
    (f"projects get {P}", "GetProject", {"project_id": P}),
    (
        f"projects update {P} --state archived --etag 1",
        "UpdateProject",
        {
            "project": {"project_id": P, "state": "PROJECT_STATE_ARCHIVED", "etag": "1"},
            "update_mask": "state",
        },
    ),
]


@pytest.mark.parametrize(("line", "rpc", "request_"), CASES, ids=[case[0] for case in CASES])
def test_the_request(desk: Desk, line: str, rpc: str, request_: dict[str, Any]) -> None:
    reply = GetMessageClass(ISSUES.method(rpc).output_type)()

    outcome = desk.run(*line.split(), "-o", "json", answers=[Answer(ISSUES, rpc, reply)])

    assert (outcome.exit_code, outcome.err) == (0, "")
    assert outcome.request == ParseDict(request_, ISSUES.request(rpc))


def test_an_update_compares_with_what_is_there_and_clears_what_is_empty(desk: Desk) -> None:
    found = issue_pb2.GetIssueResponse(issue=issue_pb2.Issue(issue_id=I1, etag="9"))
    changed = issue_pb2.UpdateIssueResponse()
    answers = [Answer(ISSUES, "GetIssue", found), Answer(ISSUES, "UpdateIssue", changed)]

    outcome = desk.run(
        "issues", "update", I1, "--agent", "", "--parent", "", "--subscriber", "", answers=answers
    )

    assert outcome.exit_code == 0
    assert outcome.requests[1] == ParseDict(
        {
            "issue_id": I1,
            "etag": "9",
            "update_mask": "assigneeAgentId,parentIssueId,subscriberUserIds",
        },
        ISSUES.request("UpdateIssue"),
    )
