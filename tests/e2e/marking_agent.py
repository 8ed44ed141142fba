"""An agent for tests: leaves a line per start, may wait at a gate, and finishes its work."""

from __future__ import annotations

import json
import os
from pathlib import Path


def main() -> None:
    run_id = os.environ["REVEILLE_RUN_ID"]
    with Path(os.environ["MARKS"]).open("a", encoding="utf-8") as marks:
        marks.write(f"{run_id}\n")
    if gate := os.environ.get("GATE"):
        # Opening a FIFO waits for whoever opens the other end.
        Path(gate).read_text(encoding="utf-8")
    payload = json.loads(Path(os.environ["REVEILLE_PAYLOAD_FILE"]).read_text(encoding="utf-8"))
    answer = {
        "summary": "marked",
        "result": {"run_id": run_id, "traceparent": os.environ.get("TRACEPARENT", "")},
    }
    if payload["issue"] is not None:
        answer["issue_status"] = "done"
    Path(os.environ["REVEILLE_RESULT_FILE"]).write_text(json.dumps(answer), encoding="utf-8")


main()
