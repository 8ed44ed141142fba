"""A small agent: reads what woke it, says what it makes of it, and writes its result.

Reveille starts it as a process. What it may read is in the file that
REVEILLE_PAYLOAD_FILE names, what it answers goes to REVEILLE_RESULT_FILE.
"""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any


def describe(payload: dict[str, Any]) -> str:
    """Say in one line what the payload asks for."""
    body = payload["payload"].get("body")
    if isinstance(body, dict) and isinstance(body.get("issue"), dict):
        issue = body["issue"]
        labels = ", ".join(label["name"] for label in issue.get("labels", [])) or "no label"
        where = body["repository"]["full_name"]
        who = issue["user"]["login"]
        return f"{where}#{issue['number']} “{issue['title']}” by {who} ({labels})"
    if payload.get("issue"):
        return f"{payload['issue']['identifier']} “{payload['issue']['title']}”"
    return str(payload["wake"]["title"])


def main() -> int:
    """Handle one wake; the exit status tells whether it went well."""
    # Output is kept as UTF-8, whatever locale the service was started in.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    payload = json.loads(Path(os.environ["REVEILLE_PAYLOAD_FILE"]).read_text(encoding="utf-8"))
    wake = payload["wake"]
    subject = describe(payload)
    print(f"woken by {wake['source']} because of {wake['reason']}")
    print(f"asked to: {wake['prompt']}")
    print(f"looking at {subject}")
    print(f"trace parent {os.environ.get('TRACEPARENT', 'none')}")
    result: dict[str, Any] = {
        "summary": f"Triaged {subject}",
        "result": {"subject": subject, "traceparent": os.environ.get("TRACEPARENT", "")},
        "next_action": "none",
    }
    if payload.get("issue"):
        result["issue_status"] = "done"
    Path(os.environ["REVEILLE_RESULT_FILE"]).write_text(json.dumps(result), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
