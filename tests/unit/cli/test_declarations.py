"""The nouns are declarations; here every name in them is held against the contracts."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest
from google.protobuf import descriptor_pool

from reveille.common.v1 import access_pb2
from reveille_cli.build import build
from reveille_cli.declare import Noun, Verb
from reveille_cli.main import COMMANDS
from reveille_cli.values import field_of
from reveille_cli.views import COLUMNS, COMPUTED

# RPCs that users may call and that are reached otherwise than by a verb.
_BY_ACTION = {
    "WaitRun": "runs wait",
    "WatchRuns": "runs watch",
    "ReadRunLog": "agent-runs logs",
    "WatchRun": "agent-runs watch",
    "EnqueueWakeups": "wakeups create",
    "GetDeliveryBody": "deliveries body",
    "WatchDeliveries": "deliveries watch",
    "ExplainSignature": "hooks explain",
    "ListProviders": "hooks sign",
    "CheckEndpoint": "apply",
    "Explain": "why",
    "PreviewSchedule": "schedule preview, which asks the evaluator itself",
}
# Meant for services; the operator may help out, by other means than this command.
_NOT_FOR_HANDS = {
    "RegisterJob",
    "UpsertScopes",
    "DeleteScopes",
    "WatchEvents",
}


def nouns() -> Iterator[Noun]:
    for target in COMMANDS.values():
        module, _, name = target.partition(":")
        if name == "NOUN":
            yield from with_those_below(importlib.import_module(module).NOUN)


def with_those_below(noun: Noun) -> Iterator[Noun]:
    yield noun
    for _, action in noun.actions:
        if isinstance(action, Noun):
            yield from with_those_below(action)


NOUNS = list(nouns())
VERBS = [(noun, verb) for noun in NOUNS for verb in noun.verbs]


def name_of(value: object) -> str:
    return value.name if isinstance(value, Noun | Verb) else ""


def test_every_noun_is_there() -> None:
    assert {noun.name for noun in NOUNS} == {
        "workspaces",
        "members",
        "agents",
        "squads",
        "runtimes",
        "autopilots",
        "triggers",
        "secrets",
        "collaborators",
        "runs",
        "agent-runs",
        "deliveries",
        "wakeups",
        "issues",
        "approvals",
        "projects",
        "executions",
        "jobs",
        "scopes",
    }
    below = {"secrets", "collaborators"}
    assert all(COMMANDS.get(noun.name) for noun in NOUNS if noun.name not in below)


@pytest.mark.parametrize(("noun", "verb"), VERBS, ids=name_of)
def test_a_verb_fits_the_contract(noun: Noun, verb: Verb) -> None:
    method = noun.api.method(verb.rpc)
    for param in verb.params:
        if param.apply is None:
            field = field_of(method.input_type, param.field)
            assert not (param.argument and field.is_repeated)
    names = [param.name for param in verb.params]
    assert len(names) == len(set(names))
    # What a person reads is the thing's id, not the way to it in the request.
    paths = {param.field.replace(".", "_") for param in verb.params if "." in param.field}
    assert paths.isdisjoint(param.label for param in verb.params if param.argument)
    if verb.shows:
        shown = method.output_type.fields_by_name[verb.shows]
        others = {field.name for field in method.output_type.fields} - {verb.shows}
        # Whatever else an answer holds would be lost on the way.
        others -= {verb.beside}
        assert others <= {"next_page_token", "hook_path", "hook_url", "endpoint_ready"}
        if shown.is_repeated:
            assert shown.message_type is not None
            assert shown.message_type.full_name in COLUMNS
    build(noun)


@pytest.mark.parametrize("message", sorted(COLUMNS))
def test_the_columns_are_fields(message: str) -> None:
    known = {
        field.name for field in descriptor_pool.Default().FindMessageTypeByName(message).fields
    }
    assert set(COLUMNS[message]) <= known | set(COMPUTED)


def test_every_rpc_that_a_user_may_call_can_be_reached() -> None:
    reached = {verb.rpc for _, verb in VERBS} | set(_BY_ACTION) | _NOT_FOR_HANDS
    missing = []
    pool = descriptor_pool.Default()
    for service in {f"{noun.api.package}.{noun.api.name}" for noun in NOUNS}:
        for method in pool.FindServiceByName(service).methods:
            access = method.GetOptions().Extensions[access_pb2.access]
            open_to_users = access.operator or access.user != access_pb2.ROLE_UNSPECIFIED
            if open_to_users and method.name not in reached:
                missing.append(f"{service}/{method.name}")
    assert missing == []
