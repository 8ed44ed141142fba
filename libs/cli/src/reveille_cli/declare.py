"""What a noun is made of: verbs, each an RPC, and their parameters, each a field of its request.

These are declarations only. `build` makes commands of them, `printer` prints what they answer, and
a test holds every name in them against the contracts.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reveille_cli.apis import Api

if TYPE_CHECKING:
    from reveille_cli.connection import Client
    from reveille_cli.names import Naming
    from reveille_cli.printer import Printer


# The mask of an update whose request has the fields of the thing itself.
FLAT = "."


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter; how its text becomes a value follows from the field's type.

    Attributes:
        field: The request's field, dotted where it lies deeper.
        help: One line.
        flag: The option's name, from the field's where empty.
        argument: Given by position, not by an option.
        short: A one-letter option beside.
        required: Whether the command is refused without it.
        variable: An environment variable that gives it too.
        file: Also given by `<flag>-file`, which names a file or `-`.
        many: May be repeated; follows from the field unless `apply` is set.
        apply: Puts the value into the request, where a plain assignment will not do.
        fallback: Finds the value where none was given.
        names: What may stand for the id, beside the id itself.
        clears: Whether an empty value stands for none at all.
    """

    field: str
    help: str
    flag: str = ""
    argument: bool = False
    short: str = ""
    required: bool = False
    variable: str = ""
    file: bool = False
    many: bool = False
    apply: Callable[[Any, Any, str], None] | None = None
    fallback: Callable[[Client], str] | None = None
    names: Naming | None = None
    clears: bool = False

    @property
    def option(self) -> str:
        """The option's name, dashes included."""
        return self.flag or "--" + self.field.replace(".", "-").replace("_", "-")

    @property
    def label(self) -> str:
        """The parameter's name in messages."""
        return self.option.removeprefix("--").replace("-", "_")

    @property
    def name(self) -> str:
        """The parameter's name in Python."""
        return f"{self.label}_" if keyword.iskeyword(self.label) else self.label


@dataclass(frozen=True, slots=True)
class Verb:
    """One RPC as a command.

    Attributes:
        check: Looks at the request once it is filled, before it is sent.
        shows: The field of the answer that is printed; repeated fields make a list, and an empty
            name stands for the whole answer.
        main: Where the whole answer is shown: the part whose fields stand without its name.
        note: A line for the person, on stderr, once it is done.
        beside: The field of the answer whose facts stand among those shown, thing by thing.
        mask: Of an update, the request's field that holds the thing, or FLAT: what was given of it
            is named in the mask, and an etag that was not given is read with `read` just before.
        read: The RPC that reads the thing of an update.
        judge: Looks at what is shown: says what a person has to know, and ends the command with
            another code than 0 where the answer is not what was wanted.
        after: Asks what else a person has to know, once it is done and shown; given the request.
    """

    name: str
    help: str
    rpc: str
    params: tuple[Param, ...]
    shows: str = ""
    main: str = ""
    note: str = ""
    beside: str = ""
    mask: str = ""
    read: str = ""
    check: Callable[[Any], None] | None = None
    judge: Callable[[Any, Printer], None] | None = None
    after: Callable[[Client, Any, Printer], None] | None = None


@dataclass(frozen=True, slots=True)
class Noun:
    """A noun and everything that can be done with it.

    `actions` are commands that are more than one RPC: functions, or nouns below this one.
    """

    name: str
    help: str
    api: Api
    verbs: tuple[Verb, ...]
    actions: tuple[tuple[str, Callable[..., None] | Noun], ...] = ()
