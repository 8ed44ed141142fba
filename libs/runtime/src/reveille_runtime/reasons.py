"""Reasons on the wire and in rows: the enum's names, in lower case and without the prefix."""

from __future__ import annotations

from reveille.common.v1 import reason_pb2

_PREFIX = "REASON_"


def reason_name(value: int) -> str | None:
    """Give a reason as it is stored and printed; None when things went the ordinary way.

    A value that this release does not know yet keeps its number: `reason_190`.
    """
    if value == reason_pb2.REASON_UNSPECIFIED:
        return None
    known = reason_pb2.Reason.DESCRIPTOR.values_by_number.get(value)
    if known is None:
        return f"{_PREFIX}{value}".lower()
    return known.name.removeprefix(_PREFIX).lower()


def reason_value(name: str | None) -> reason_pb2.Reason.ValueType:
    """Give a stored reason as the contract's value; unspecified for none and for an unknown one."""
    if not name:
        return reason_pb2.REASON_UNSPECIFIED
    try:
        return reason_pb2.Reason.Value(_PREFIX + name.upper())
    except ValueError:
        return reason_pb2.REASON_UNSPECIFIED
