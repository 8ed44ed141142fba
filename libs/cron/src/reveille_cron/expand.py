"""From fields to sets of values. croniter counts out the ranges; it sees nothing else.

It is given only plain numbers and ranges of two or more values, because it reads `1-1` as the
whole field and wraps a weekday range that ends in 7.
"""

from __future__ import annotations

from collections.abc import Sequence

from croniter import croniter

from reveille_cron.fields import FieldSpec
from reveille_cron.grammar import Field, Span


def expand(fields: Sequence[Field]) -> tuple[tuple[int, ...], ...]:
    """Return the plain values of each field, ascending; nothing for a field that has none."""
    text = " ".join(_expander_text(field) for field in fields)
    expanded, _ = croniter.expand(text)
    return tuple(
        _values(field.spec, counted) if field.spans else ()
        for field, counted in zip(fields, expanded, strict=True)
    )


def _expander_text(field: Field) -> str:
    return ",".join(part for span in field.spans for part in _span_texts(field.spec, span)) or "*"


def _span_texts(spec: FieldSpec, span: Span) -> list[str]:
    """Spell a span so that every cron reads it alike, the alias value as what it stands for."""
    stop, texts = span.stop, []
    if stop == spec.alias:
        stop -= 1
        if (spec.alias - span.start) % span.step == 0:
            texts.append(str(spec.low))
    if span.start + span.step > stop:
        texts.append(str(span.start))
    else:
        texts.append(f"{span.start}-{stop}/{span.step}")
    return texts


def _values(spec: FieldSpec, counted: Sequence[int | str]) -> tuple[int, ...]:
    if list(counted) == ["*"]:
        return tuple(range(spec.low, spec.high + 1))
    return tuple(sorted(int(value) for value in counted))
