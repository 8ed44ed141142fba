"""The demo's request is GitHub's, to the byte and the header."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from reveille_cli.demo import github

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "github" / "issues_opened.json"
SAMPLE = ROOT.parent / "shared" / "cases" / "payloads" / "github_issues_opened.json"
SECRET = b"a secret of the hook"


class Receiver(HTTPServer):
    """Keeps the last request as it came."""

    answer = b'{"status": "accepted", "delivery_id": "d"}'
    code = 200

    def __init__(self) -> None:
        self.request_line = ""
        self.headers: list[tuple[str, str]] = []
        self.body = b""
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        self.server.request_line = self.requestline
        self.server.headers = list(self.headers.items())
        self.server.body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.server.code)
        self.send_header("Content-Length", str(len(self.server.answer)))
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_request(self, *args: object) -> None:
        """Stay quiet."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def url(receiver: Receiver) -> str:
    return f"http://127.0.0.1:{receiver.server_port}/hooks/awt_token"


def test_the_body_is_compact_and_both_signatures_are_true() -> None:
    request = github.issues_opened(EXAMPLE, SECRET)

    assert json.loads(request.body) == json.loads(EXAMPLE.read_text(encoding="utf-8"))
    assert b'", "' not in request.body
    assert "“twice”".encode() in request.body
    for header, algorithm in (("X-Hub-Signature", "sha1"), ("X-Hub-Signature-256", "sha256")):
        digest = hmac.new(SECRET, request.body, getattr(hashlib, algorithm)).hexdigest()
        assert request.headers[header] == f"{algorithm}={digest}"


def test_every_header_of_github_is_sent_and_no_other(receiver: Receiver) -> None:
    request = github.issues_opened(EXAMPLE, SECRET)

    answer = github.post(url(receiver), request)

    assert (answer.code, answer.status, answer.text("delivery_id")) == (200, "accepted", "d")
    assert receiver.request_line == "POST /hooks/awt_token HTTP/1.1"
    assert receiver.body == request.body
    sent = dict(receiver.headers)
    assert len(sent) == len(receiver.headers)
    assert sent.pop("Host") == f"127.0.0.1:{receiver.server_port}"
    assert sent.pop("Content-Length") == str(len(request.body))
    assert sent == request.headers
    assert set(sent) == {
        "Accept",
        "Content-Type",
        "User-Agent",
        "X-GitHub-Delivery",
        "X-GitHub-Event",
        "X-GitHub-Hook-ID",
        "X-GitHub-Hook-Installation-Target-ID",
        "X-GitHub-Hook-Installation-Target-Type",
        "X-Hub-Signature",
        "X-Hub-Signature-256",
    }
    assert sent["User-Agent"].startswith("GitHub-Hookshot/")


@pytest.mark.parametrize("content", [b"not json", b"[1]", b""])
def test_an_answer_that_is_no_object_says_nothing(receiver: Receiver, content: bytes) -> None:
    receiver.answer, receiver.code = content, 503

    answer = github.post(url(receiver), github.issues_opened(EXAMPLE, SECRET))

    assert (answer.code, answer.status, dict(answer.document)) == (503, "", {})


def test_a_forgery_differs_by_its_id_and_its_signatures_only() -> None:
    request = github.issues_opened(EXAMPLE, SECRET)
    forgery = github.forged(request)

    assert forgery.body == request.body
    changed = {name for name, value in request.headers.items() if forgery.headers[name] != value}
    assert changed == {"X-GitHub-Delivery", "X-Hub-Signature", "X-Hub-Signature-256"}


def test_a_hook_is_shown_without_its_credential() -> None:
    assert github.masked("/hooks/awt_0123456789") == "/hooks/awt_0123…"


def test_the_example_has_every_field_that_github_documents() -> None:
    if not SAMPLE.is_file():
        pytest.skip("the folder of cases is not beside this checkout")
    documented = json.loads(SAMPLE.read_text(encoding="utf-8"))["body"]
    ours = json.loads(EXAMPLE.read_text(encoding="utf-8"))

    assert missing(documented, ours) == []


def missing(theirs: Any, ours: Any, path: str = "") -> list[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return [
            each
            for name, value in theirs.items()
            for each in (
                missing(value, ours[name], f"{path}.{name}") if name in ours else [f"{path}.{name}"]
            )
        ]
    if isinstance(theirs, list) and isinstance(ours, list) and theirs and ours:
        return missing(theirs[0], ours[0], f"{path}[]")
    return []
