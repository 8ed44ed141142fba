"""The options of a hook in a file: read from it, compared, and written into it.

Their names and values are those of the contract, as `triggers create-webhook --options` has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from reveille.webhook.v1.endpoint_service_pb2 import EndpointOptions
from reveille_cli.apply.document import Node, Problems
from reveille_cli.failures import Failure
from reveille_cli.jsonform import is_empty, plain
from reveille_cli.values import assign

KEY = "options"
PATH = "webhook.options"


def read_options(found: Problems, node: Node, trigger: Any) -> None:
    """Read all options of a webhook trigger; what is wrong is noted by the option's own line."""
    trigger.webhook.options.SetInParent()
    _read(found, node, trigger.webhook.options, KEY)


def options_set(options: EndpointOptions) -> dict[str, Any]:
    """Give the options that say something, as a file has them."""
    return _without_usual(plain(options))


def differing(before: EndpointOptions, after: EndpointOptions) -> Iterator[tuple[str, Any, Any]]:
    """Yield the options that differ, by dotted name; one that is as usual is None."""
    old, new = (dict(_flat(options_set(each))) for each in (before, after))
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            yield name, old.get(name), new.get(name)


def _read(found: Problems, node: Node, message: Any, what: str) -> None:
    fields = {each.name: each for each in message.DESCRIPTOR.fields}
    for name, value in found.mapping(node, what, list(fields)).items():
        field, full_name = fields[name], f"{what}.{name}"
        if field.message_type is not None:
            inner = getattr(message, name)
            inner.SetInParent()
            _read(found, value, inner, full_name)
            continue
        try:
            assign(message, name, _value(found, value, field, full_name), full_name)
        except Failure as failure:
            found.add(value.line, failure.message)
        except (TypeError, ValueError) as error:
            found.add(value.line, f"{full_name}: {error}")


def _value(found: Problems, node: Node, field: Any, what: str) -> Any:
    if field.is_repeated:
        return [found.text(each, what) for each in found.items(node, what)]
    if field.type != FieldDescriptor.TYPE_INT32:
        return found.text(node, what)
    return found.number(node, what)


def _without_usual(values: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in values.items():
        said = _without_usual(value) if isinstance(value, Mapping) else value
        if not is_empty(said) and said != 0:
            found[name] = said
    return found


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value
