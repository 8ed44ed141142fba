"""A webhook request as GitHub sends it, true to the byte, and what came back."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

USER_AGENT = "GitHub-Hookshot/7c1e0d4"
EVENT = "issues"
_HOOK_ID = "480000001"
_TIMEOUT = 15.0
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class HookRequest:
    """A request, complete but for the address and what follows from it."""

    headers: Mapping[str, str]
    body: bytes

    @property
    def delivery(self) -> str:
        """GitHub's own id of this delivery."""
        return self.headers["X-GitHub-Delivery"]


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """What the gateway answered, and how long it took."""

    code: int
    document: Mapping[str, Any]
    seconds: float

    @property
    def status(self) -> str:
        """The answer's word, such as `accepted`; empty when it has none."""
        return self.text("status")

    def text(self, name: str) -> str:
        """Return a field of the answer as text."""
        return str(self.document.get(name) or "")


def issues_opened(example: Path, secret: bytes) -> HookRequest:
    """Build the request that tells of a new issue, signed with the hook's secret."""
    document = json.loads(example.read_text(encoding="utf-8"))
    # GitHub sends compact JSON in UTF-8 and signs those very bytes.
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    return HookRequest(
        headers={
            "Accept": "*/*",
            "Content-Type": "application/json",
            "User-Agent": USER_AGENT,
            "X-GitHub-Delivery": str(uuid.uuid4()),
            "X-GitHub-Event": EVENT,
            "X-GitHub-Hook-ID": _HOOK_ID,
            "X-GitHub-Hook-Installation-Target-ID": str(document["repository"]["id"]),
            "X-GitHub-Hook-Installation-Target-Type": "repository",
            **signatures(body, secret),
        },
        body=body,
    )


def signatures(body: bytes, secret: bytes) -> dict[str, str]:
    """Return both signature headers that GitHub sends for a hook with a secret."""
    return {
        "X-Hub-Signature": f"sha1={hmac.new(secret, body, hashlib.sha1).hexdigest()}",
        "X-Hub-Signature-256": f"sha256={hmac.new(secret, body, hashlib.sha256).hexdigest()}",
    }


def forged(request: HookRequest) -> HookRequest:
    """Return another delivery of the same body, signed by somebody without the secret."""
    headers = {**request.headers, "X-GitHub-Delivery": str(uuid.uuid4())}
    return HookRequest({**headers, **signatures(request.body, b"a guess")}, request.body)


def post(url: str, request: HookRequest) -> HookAnswer:
    """Send the request, with these headers and no others than HTTP itself needs."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=_TIMEOUT)
    started = time.monotonic()
    try:
        connection.putrequest("POST", parts.path, skip_accept_encoding=True)
        for name, value in request.headers.items():
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(request.body)))
        connection.endheaders(request.body)
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    seconds = time.monotonic() - started
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    return HookAnswer(response.status, document if isinstance(document, dict) else {}, seconds)


def masked(path: str) -> str:
    """Show a hook's path without what makes it a credential."""
    folder, _, token = path.rpartition("/")
    return f"{folder}/{token[:_SHOWN]}…"
