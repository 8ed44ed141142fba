"""What an attempt used and what it cost, as its agent tells it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

FIELDS = (
    "provider",
    "model",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "cost_cents",
    "cost_usd",
)
MAX_MODELS = 50
_MAX_NAME = 100
_MAX_TOKENS = 10**15
_MAX_CENTS = Decimal(10) ** 12
_CENT_PARTS = Decimal("0.000001")


class BadUsage(Exception):
    """A usage that cannot be booked; the message says why."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one model, all that the attempt has used so far."""

    provider: str
    model: str
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    # None: nobody told a price.
    cost_cents: Decimal | None = None


def read_usage(value: object) -> tuple[Usage, ...]:
    """Read the usage of a result: one object, or a list of them, one per model.

    Raises:
        BadUsage: it is something else, or a number is not one.
    """
    if value is None:
        return ()
    items = value if isinstance(value, list) else [value]
    if len(items) > MAX_MODELS:
        raise BadUsage(f"usage names more than {MAX_MODELS} models")
    return _one_per_model(_usage(at, item) for at, item in enumerate(items))


def _usage(at: int, item: object) -> Usage:
    where = f"usage[{at}]"
    if not isinstance(item, Mapping):
        raise BadUsage(f"{where} is not an object")
    return Usage(
        _name(where, item, "provider"),
        _name(where, item, "model"),
        _tokens(where, item, "input_tokens"),
        _tokens(where, item, "cached_input_tokens"),
        _tokens(where, item, "output_tokens"),
        _cost(where, item),
    )


def _one_per_model(usages: Iterable[Usage]) -> tuple[Usage, ...]:
    """Reports are cumulative: of two for one model the larger numbers count."""
    merged: dict[tuple[str, str], Usage] = {}
    for each in usages:
        key = (each.provider, each.model)
        known = merged.get(key)
        merged[key] = each if known is None else _larger(known, each)
    return tuple(merged.values())


def _larger(one: Usage, other: Usage) -> Usage:
    costs = [cost for cost in (one.cost_cents, other.cost_cents) if cost is not None]
    return Usage(
        one.provider,
        one.model,
        max(one.input_tokens, other.input_tokens),
        max(one.cached_input_tokens, other.cached_input_tokens),
        max(one.output_tokens, other.output_tokens),
        max(costs, default=None),
    )


def _name(where: str, item: Mapping[str, Any], field: str) -> str:
    value = item.get(field, "")
    if not isinstance(value, str) or len(value) > _MAX_NAME:
        raise BadUsage(f"{where}.{field} is not a text of at most {_MAX_NAME} characters")
    return value


def _tokens(where: str, item: Mapping[str, Any], field: str) -> int:
    value = item.get(field, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_TOKENS:
        raise BadUsage(f"{where}.{field} is not a whole number from 0 to {_MAX_TOKENS}")
    return value


def _cost(where: str, item: Mapping[str, Any]) -> Decimal | None:
    for field, cents in (("cost_cents", 1), ("cost_usd", 100)):
        value = item.get(field)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise BadUsage(f"{where}.{field} is not a number")
        try:
            cost = Decimal(str(value)) * cents
        except InvalidOperation:
            raise BadUsage(f"{where}.{field} is not a number") from None
        if not cost.is_finite() or not 0 <= cost <= _MAX_CENTS:
            raise BadUsage(f"{where}.{field} is not a number from 0 to {_MAX_CENTS / cents:f}")
        return cost.quantize(_CENT_PARTS)
    return None
