"""A length of time as a command line's value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rmqctl.formats.errors import UsageError
from rmqctl.output.times import parse_span

if TYPE_CHECKING:
    _SpanParameter = click.ParamType[int]
else:
    _SpanParameter = click.ParamType  # older releases of click cannot be subscripted


class SpanType(_SpanParameter):
    """A length of time, in milliseconds."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Milliseconds; a usage error that names the option if `value` is no length of time."""
        if isinstance(value, int):
            return value
        try:
            return parse_span(value)
        except UsageError as error:
            self.fail(f"{error.message}: {error.hint}", param, ctx)


SPAN = SpanType()
