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

from reveille_cli.connection import Client
from reveille_cli.declare import FLAT, Noun, Param, Verb
from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure, refused, reporting
from reveille_cli.jsonform import enum_words
from reveille_cli.names import (
    AGENT,
    AUTOPILOT,
    ISSUE,
    PROJECT,
    RUNTIME,
    SQUAD,
    WORKSPACE,
    WORKSPACE_VARIABLE,
    find_id,
)
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
_OF_WORKSPACE = (AGENT, AUTOPILOT, PROJECT, RUNTIME, SQUAD)
# Where the ids of a field are found; those of the workspace's things have names, too.
_LISTED_BY = {
    "delivery_id": "deliveries list",
    "endpoint_id": "triggers list AUTOPILOT",
    "execution_id": "executions list",
    "trigger_id": "triggers list AUTOPILOT",
    "wakeup_id": "wakeups list",
}
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
        app.command(verb.name, help=verb.help)(_command(noun, verb))
    for name, action in noun.actions:
        if isinstance(action, Noun):
            app.add_typer(build(action), name=name)
        else:
            app.command(name)(action)
    return app


def _command(noun: Noun, verb: Verb) -> Callable[..., None]:
    """Make the function that typer reads: its signature is the verb's parameters."""
    api = noun.api
    method = api.method(verb.rpc)
    paged = _PAGED in method.output_type.fields_by_name
    parameters = [*_parameters(verb.params, method.input_type), *(_PAGING if paged else ())]
    if any(param.names in _OF_WORKSPACE for param in verb.params) and "workspace" not in {
        param.name for param in verb.params
    }:
        parameters.append(_WHERE)
    parameters += _COMMON

    def run(data_dir: Path, output: OutputFormat, **values: Any) -> None:
        with session(data_dir, output) as (client, printer):
            paging = {name: values.pop(name) for name in ("limit", "page_token") if paged}
            request = api.request(verb.rpc)
            try:
                fill(request, verb.params, values, client)
                if verb.check is not None:
                    verb.check(request)
                if verb.mask:
                    _name_changes(request, noun, verb, values, client)
                if paged:
                    _list(client, printer, noun, verb, request, **paging)
                else:
                    _show(client.call(api, verb.rpc, request), noun, verb, printer)
                if verb.after is not None:
                    verb.after(client, request, printer)
            except Failure as failure:
                put_in_words(failure, noun, verb)
                raise

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def fill(
    request: Message, params: tuple[Param, ...], values: Mapping[str, Any], client: Client
) -> None:
    """Put what was typed into a request."""
    where = values.get("workspace")
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
        elif value is not None and param.names is not None and not (param.clears and value == ""):
            value = _ids(client, param, value, where)
        if param.names is WORKSPACE:
            where = value
        if value is None or value is False:
            if param.required:
                raise refused(param.label, f"is required: give {_ways(param)}")
            continue
        if param.apply is not None:
            param.apply(request, value, param.label)
        else:
            assign(request, param.field, value, param.label)


def _ids(client: Client, param: Param, value: Any, where: str | None) -> Any:
    """Find the id, or the ids, that were named."""
    if param.names is None:
        raise AssertionError("only what has names is looked up")
    if isinstance(value, list):
        return [find_id(client, param.names, each, where, param.label) for each in value]
    return find_id(client, param.names, value, where, param.label)


def _name_changes(
    request: Any, noun: Noun, verb: Verb, values: Mapping[str, Any], client: Client
) -> None:
    """Name in the mask what was given, and read the etag that was not."""
    thing = request if verb.mask == FLAT else getattr(request, verb.mask)
    unnamed = {f"{verb.shows}_id", "etag"}
    for param in verb.params:
        path = param.field.removeprefix(f"{verb.mask}.")
        given = values.get(param.name), values.get(param.name + _FILE)
        if path not in unnamed and any(map(_was_given, given)):
            request.update_mask.paths.append(path)
    if not request.update_mask.paths:
        options = ", ".join(
            each.option
            for each in verb.params
            if not each.argument and each.field.rpartition(".")[2] != "etag"
        )
        raise refused("options", f"nothing to change was given: name it with {options}")
    if not thing.etag:
        wanted = noun.api.request(
            verb.read, **{f"{verb.shows}_id": getattr(thing, f"{verb.shows}_id")}
        )
        thing.etag = getattr(client.call(noun.api, verb.read, wanted), verb.shows).etag


def _was_given(value: Any) -> bool:
    """Tell what was typed, an empty text and a zero as well, from what was left alone."""
    return value is not None and value is not False and value != []


def put_in_words(failure: Failure, noun: Noun, verb: Verb) -> None:
    """Make the refusal of a field speak of what was typed, and tell where ids are found."""
    names = {param.field: param.label for param in verb.params if param.field}
    # An update is judged by what it changes, which some refusals name without the thing.
    failure.call(names | {path.removeprefix(f"{verb.mask}."): names[path] for path in names})
    fields = [each.field for each in failure.violations if each.field in names]
    if failure.exit_code is not ExitCode.REFUSED or failure.hint or len(fields) != 1:
        return
    if fields[0] in _LISTED_BY:
        failure.hint = f"see `reveille {_LISTED_BY[fields[0]]}`"
    elif fields[0] == "run_id":
        failure.hint = f"see `reveille {noun.name} list`"


def _show(response: Message, noun: Noun, verb: Verb, printer: Printer) -> None:
    shown: Any = getattr(response, verb.shows) if verb.shows else response
    beside: Any = getattr(response, verb.beside) if verb.beside else None
    if isinstance(shown, Message):
        printer.one(shown, main=verb.main, beside=beside)
    else:
        printer.rows(verb.shows, shown, things=_things(noun))
    if verb.note:
        printer.note(verb.note)
    if verb.judge is not None:
        verb.judge(shown, printer)


def _list(
    client: Client,
    printer: Printer,
    noun: Noun,
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
    beside: list[Message] = []
    request.page_token = page_token or ""
    while True:
        request.page_size = min(MAX_PAGE, limit - len(rows)) if limit else MAX_PAGE
        response = client.call(noun.api, verb.rpc, request)
        rows.extend(getattr(response, verb.shows))
        if verb.beside:
            beside.extend(getattr(response, verb.beside))
        request.page_token = response.next_page_token
        if not response.next_page_token or (limit and len(rows) >= limit):
            break
    token = request.page_token
    printer.rows(verb.shows, rows, next_page_token=token, things=_things(noun), beside=beside)


def _things(noun: Noun) -> str:
    return noun.name.replace("-", " ")


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
        variable, metavar, help_text = param.variable or None, None, _help(param, field)
        # A metavar of many words would be cut in the middle of one; the help is folded.
        if field is not None and field.enum_type is not None:
            metavar = param.label.upper()
        if param.argument:
            info = typer.Argument(help=help_text, envvar=variable, metavar=metavar)
            yield _parameter(param.name, _kind(param, field), info, inspect.Parameter.empty)
            continue
        kind = _kind(param, field)
        names = [param.option, *([param.short] if param.short else [])]
        option = typer.Option(*names, help=help_text, envvar=variable, metavar=metavar)
        yield _parameter(param.name, kind, option, False if kind is bool else None)
        if param.file:
            beside = typer.Option(f"{param.option}-file", help="The same from a file; - is stdin.")
            yield _parameter(param.name + _FILE, str, beside, None)


def _help(param: Param, field: FieldDescriptor | None) -> str:
    text = param.help
    if param.names in _OF_WORKSPACE or param.names is ISSUE:
        text = f"{text.removesuffix('.')}, by id or {param.names.name}."
    if field is not None and field.enum_type is not None:
        text = f"{text} One of {', '.join(enum_words(field.enum_type))}."
    return f"{text} (required)" if param.required else text


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


_WHERE = _parameter(
    "workspace",
    str,
    typer.Option(
        "--workspace",
        "-w",
        envvar=WORKSPACE_VARIABLE,
        help="Where a name is looked up; the only workspace there is when left out.",
    ),
    None,
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
