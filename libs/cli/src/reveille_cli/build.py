"""Makes commands of declarations: a typer app for each noun, one runner for every verb."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from reveille_cli.apis import Api
from reveille_cli.connection import Client
from reveille_cli.declare import Noun, Param, Verb
from reveille_cli.failures import refused, reporting
from reveille_cli.jsonform import enum_words
from reveille_cli.options import (
    DEFAULT_DIR,
    DEFAULT_OUTPUT,
    DataDirOption,
    OutputFormat,
    OutputOption,
)
from reveille_cli.printer import Printer
from reveille_cli.values import assign, field_of, read_file

MAX_PAGE = 200
DEFAULT_LIMIT = 50
_FILE = "_file"
_PAGED = "next_page_token"


@contextmanager
def session(data_dir: Path, output: OutputFormat) -> Iterator[tuple[Client, Printer]]:
    """Give a command its client and its printer, and turn its failure into an exit code."""
    with reporting(output), Client(data_dir) as client:
        yield client, Printer(output)


def build(noun: Noun) -> typer.Typer:
    """Make the app of a noun."""
    app = typer.Typer(help=noun.help, no_args_is_help=True, add_completion=False)
    for verb in noun.verbs:
        app.command(verb.name, help=verb.help)(_command(noun.api, verb))
    for name, action in noun.actions:
        if isinstance(action, Noun):
            app.add_typer(build(action), name=name)
        else:
            app.command(name)(action)
    return app


def _command(api: Api, verb: Verb) -> Callable[..., None]:
    """Make the function that typer reads: its signature is the verb's parameters."""
    method = api.method(verb.rpc)
    paged = _PAGED in method.output_type.fields_by_name
    parameters = [*_parameters(verb.params, method.input_type), *(_PAGING if paged else ())]
    parameters += _COMMON

    def run(data_dir: Path, output: OutputFormat, **values: Any) -> None:
        with session(data_dir, output) as (client, printer):
            paging = {name: values.pop(name) for name in ("limit", "page_token") if paged}
            request = api.request(verb.rpc)
            fill(request, verb.params, values, client)
            if paged:
                _list(client, printer, api, verb, request, **paging)
            else:
                _show(client.call(api, verb.rpc, request), verb, printer)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def fill(
    request: Message, params: tuple[Param, ...], values: Mapping[str, Any], client: Client
) -> None:
    """Put what was typed into a request."""
    for param in params:
        value = values.get(param.name)
        if param.file and (file := values.get(param.name + _FILE)) is not None:
            if value is not None:
                raise refused(param.label, f"give {param.option} or {param.option}-file, not both")
            value = read_file(file, param.label)
        if isinstance(value, list):
            value = [_word(each) for each in value] or None
        value = _word(value)
        if value is None and param.fallback is not None:
            value = param.fallback(client)
        if value is None or value is False:
            if param.required:
                raise refused(param.label, f"is required: give {_ways(param)}")
            continue
        if param.apply is not None:
            param.apply(request, value, param.label)
        else:
            assign(request, param.field, value, param.label)


def _show(response: Message, verb: Verb, printer: Printer) -> None:
    if not verb.shows:
        printer.one(response)
    elif response.DESCRIPTOR.fields_by_name[verb.shows].is_repeated:
        printer.rows(verb.shows, getattr(response, verb.shows))
    else:
        printer.one(getattr(response, verb.shows))
    if verb.note:
        printer.note(verb.note)


def _list(
    client: Client,
    printer: Printer,
    api: Api,
    verb: Verb,
    request: Any,
    *,
    limit: int,
    page_token: str | None,
) -> None:
    """Follow the pages until `limit` rows are there; zero means all of them."""
    if limit < 0:
        raise refused("limit", "must be 0 (all) or more")
    rows: list[Message] = []
    request.page_token = page_token or ""
    while True:
        request.page_size = min(MAX_PAGE, limit - len(rows)) if limit else MAX_PAGE
        response = client.call(api, verb.rpc, request)
        rows.extend(getattr(response, verb.shows))
        request.page_token = response.next_page_token
        if not response.next_page_token or (limit and len(rows) >= limit):
            break
    printer.rows(verb.shows, rows, next_page_token=request.page_token)


def _ways(param: Param) -> str:
    ways = [param.label if param.argument else param.option]
    if param.file:
        ways.append(f"{param.option}-file")
    if param.variable:
        ways.append(param.variable)
    return " or ".join(ways)


def _word(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _parameters(params: tuple[Param, ...], request: Descriptor) -> Iterator[inspect.Parameter]:
    for param in params:
        field = None if param.apply is not None else field_of(request, param.field)
        if param.argument:
            info = typer.Argument(help=param.help, envvar=param.variable or None)
            yield _parameter(param.name, _kind(param, field), info, inspect.Parameter.empty)
            continue
        kind = _kind(param, field)
        names = [param.option, *([param.short] if param.short else [])]
        help_text = f"{param.help} (required)" if param.required else param.help
        option = typer.Option(*names, help=help_text, envvar=param.variable or None)
        yield _parameter(param.name, kind, option, False if kind is bool else None)
        if param.file:
            beside = typer.Option(f"{param.option}-file", help="The same from a file; - is stdin.")
            yield _parameter(param.name + _FILE, str, beside, None)


def _parameter(name: str, kind: Any, info: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )


def _kind(param: Param, field: FieldDescriptor | None) -> Any:
    if field is None:
        return list[str] if param.many else str
    kind = _single_kind(field)
    return list[kind] if field.is_repeated else kind  # type: ignore[valid-type]  # made for typer


def _single_kind(field: Any) -> type:
    if field.enum_type is not None:
        return words_type(field.enum_type)
    if field.type == FieldDescriptor.TYPE_BOOL:
        return bool
    if field.type in {FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64}:
        return int
    return str


def words_type(enum: EnumDescriptor) -> type[StrEnum]:
    """Make the type of an enum's words, which typer lists, completes and checks."""
    members = {word: word for word in enum_words(enum)}
    return types.new_class(
        enum.name,
        (StrEnum,),
        exec_body=lambda body: body.update(members),
    )


_PAGING = (
    _parameter(
        "limit",
        int,
        typer.Option("--limit", "-n", help="At most this many rows; 0 for all."),
        DEFAULT_LIMIT,
    ),
    _parameter("page_token", str, typer.Option(help="Go on after an earlier list's page."), None),
)
_COMMON = (
    inspect.Parameter(
        "data_dir", inspect.Parameter.KEYWORD_ONLY, default=DEFAULT_DIR, annotation=DataDirOption
    ),
    inspect.Parameter(
        "output", inspect.Parameter.KEYWORD_ONLY, default=DEFAULT_OUTPUT, annotation=OutputOption
    ),
)
