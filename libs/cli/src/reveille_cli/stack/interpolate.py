"""Compose's variable syntax: `$NAME`, `${NAME}`, `:-`, `-`, `:?`, `?`, `:+`, `+` and `$$`.

Defaults nest, as they do in Compose. Nothing here knows what a service is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from reveille_cli.stack.errors import ComposeInvalid

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATORS = (":-", ":?", ":+", "-", "?", "+")


def interpolate(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with every variable replaced."""
    out: list[str] = []
    position = 0
    while (dollar := text.find("$", position)) >= 0:
        out.append(text[position:dollar])
        if text.startswith("$$", dollar):
            out.append("$")
            position = dollar + 2
        elif text.startswith("${", dollar):
            end = _closing_brace(text, dollar + 2)
            out.append(_expand(text[dollar + 2 : end], variables))
            position = end + 1
        elif match := _NAME.match(text, dollar + 1):
            out.append(variables.get(match.group(), ""))
            position = match.end()
        else:
            raise ComposeInvalid(f"a lone $ in {text!r}", hint="write $$ for a dollar sign")
    out.append(text[position:])
    return "".join(out)


def variables_in(text: str) -> list[str]:
    """Return the variables that stand directly in the text, not those of their defaults."""
    found: list[str] = []
    position = 0
    while (dollar := text.find("$", position)) >= 0:
        braced = text.startswith("${", dollar)
        match = _NAME.match(text, dollar + 2 if braced else dollar + 1)
        if match is None:
            # `$$`, or what `interpolate` refuses.
            position = dollar + 2
            continue
        found.append(match.group())
        position = _closing_brace(text, dollar + 2) if braced else match.end()
    return found


def _closing_brace(text: str, start: int) -> int:
    depth = 1
    for index in range(start, len(text)):
        if text.startswith("${", index):
            depth += 1
        elif text[index] == "}":
            depth -= 1
            if depth == 0:
                return index
    raise ComposeInvalid(f"an unclosed variable in {text!r}")


def _expand(inner: str, variables: Mapping[str, str]) -> str:
    match = _NAME.match(inner)
    if match is None:
        raise ComposeInvalid(f"a variable without a name: ${{{inner}}}")
    name, rest = match.group(), inner[match.end() :]
    value = variables.get(name)
    if not rest:
        return value or ""
    operator = next((known for known in _OPERATORS if rest.startswith(known)), None)
    if operator is None:
        raise ComposeInvalid(f"cannot read the variable ${{{inner}}}")
    argument = rest[len(operator) :]
    present = value is not None and (value != "" or not operator.startswith(":"))
    match operator[-1]:
        case "-":
            return value if present and value is not None else interpolate(argument, variables)
        case "+":
            return interpolate(argument, variables) if present else ""
        case _:
            if not present or value is None:
                raise ComposeInvalid(interpolate(argument, variables) or f"{name} is not set")
            return value
