"""Requests checked before their handler runs, by type."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from google.protobuf.message import Message

from reveille_runtime.interceptors.chain import RpcCall
from reveille_runtime.validation import Violations

# Takes a request and notes what is wrong with it.
Validator = Callable[[Any, Violations], None]
Validators = Mapping[type[Message], Validator]


class ServerValidation:
    """Applies the validator registered for the request's type."""

    def __init__(self, validators: Validators) -> None:
        self._validators = dict(validators)

    def add(self, validators: Validators) -> None:
        """Check these types of requests too."""
        self._validators.update(validators)

    @asynccontextmanager
    async def around(self, call: RpcCall) -> AsyncIterator[None]:
        """Refuse a request with everything that is wrong with it."""
        validator = self._validators.get(type(call.request))
        if validator is not None:
            violations = Violations()
            validator(call.request, violations)
            violations.check()
        yield
