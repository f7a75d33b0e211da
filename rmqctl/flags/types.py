"""What the values of flags may be: times, places of queues, texts, files."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.formats.errors import UnreadableError, UsageError
from rmqctl.output.span import SPAN
from rmqctl.output.times import parse_time, parse_zone

if TYPE_CHECKING:
    from rmqctl.store.offsets.decide import ResetTo

    _TimeParameter = click.ParamType[int]
    _TextParameter = click.ParamType[str]
    _PlaceParameter = click.ParamType[ResetTo]
else:
    _TimeParameter = _TextParameter = _PlaceParameter = click.ParamType  # older releases of click cannot be subscripted

# in ms of 2001; no queue holds so many messages
_SMALLEST_TIME = 10**12
_ZONE = "rmqctl.zone"


def _parsed_time(value: str, ctx: click.Context | None) -> int:
    zone = None if ctx is None else ctx.meta.get(_ZONE)
    return parse_time(value) if zone is None else parse_time(value, zone=zone)


class InputFile(click.File):
    """A file that is read as bytes, or `-` for standard input. A closed one is an error: its bytes are not known."""

    def __init__(self) -> None:
        super().__init__("rb")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The open file. UnreadableError where standard input is closed."""
        if value == "-" and sys.stdin is None:
            raise UnreadableError("standard input is closed", hint="name a file, or redirect standard input")
        return super().convert(value, param, ctx)


class TimeType(_TimeParameter):
    """A point in time, as rmqctl.times understands it, as milliseconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Milliseconds; a usage error that names the option if `value` is no time."""
        if isinstance(value, int):
            return value
        try:
            return _parsed_time(value, ctx)
        except UsageError as error:
            self.fail(f"{error.message}: {error.hint}", param, ctx)


class TextType(_TextParameter):
    """Text as it will be stored or looked for: UTF-8, whatever the locale says of the command line."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text; a usage error that names the option for bytes that are not UTF-8."""
        text = value if isinstance(value, str) else str(value)
        if text.isascii():
            return text
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            pass
        else:
            return text
        # bytes that the locale's encoding does not know were kept as they are
        try:
            return os.fsencode(text).decode("utf-8")
        except UnicodeError:
            self.fail(f"{text.encode('utf-8', 'backslashreplace').decode()!r} is not UTF-8 text", param, ctx)


TEXT = TextType()


def keep_zone(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Before any time is looked at: the option is eager."""
    if value is not None:
        try:
            ctx.meta[_ZONE] = parse_zone(value)
        except UsageError as error:
            raise click.BadParameter(f"{error.message}: {error.hint}", ctx, param) from error


class ResetPlace(_PlaceParameter):
    """Where a group is set to: a time, an offset, or one of the ends."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ResetTo:
        """Digits are an offset, as far as they are not a time in ms after 2001."""
        from rmqctl.store.offsets.decide import ResetTo

        if isinstance(value, ResetTo):
            return value
        text = str(value).strip().lower()
        if text == "earliest":
            return ResetTo("earliest")
        if text == "latest":
            return ResetTo("latest")
        if text.isascii() and text.isdigit() and int(text[:20]) < _SMALLEST_TIME:
            return ResetTo("offset", int(text))
        try:
            return ResetTo("time", _parsed_time(value, ctx))
        except UsageError as error:
            self.fail(f"{error.message}: {error.hint}, or an offset, earliest, latest", param, ctx)


TIME = TimeType()
PLACE = ResetPlace()
PEM = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)


class Seconds(click.FloatRange):
    """A number of seconds, or a span with its unit (5s, 2m); neither inf nor nan."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds; a usage error that names the option for any other value."""
        text = str(value).strip()
        if text[:1].isdigit() and text[-1:].isalpha():
            return SPAN.convert(text, param, ctx) / 1000
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value} is no number of seconds", param, ctx)
        return seconds


SECONDS = Seconds(min=0)
LARGEST_INT, LARGEST_LONG = (1 << 31) - 1, (1 << 63) - 1


class WholeNumber(click.IntRange):
    """A number from `smallest` on that a field of RocketMQ can hold. Help names the smallest only, as click has it."""

    def __init__(self, smallest: int, largest: int) -> None:
        super().__init__(min=smallest)
        self.largest = largest

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; a usage error that names the option for any other value."""
        number = int(super().convert(value, param, ctx))
        if number > self.largest:
            self.fail(f"{number} is more than {self.largest}", param, ctx)
        return number


class SignedNumber(click.types.IntParamType):
    """A number from -`largest` to `largest`, which help does not name."""

    def __init__(self, largest: int) -> None:
        self.largest = largest

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; a usage error that names the option for any other value."""
        number = int(super().convert(value, param, ctx))
        if abs(number) > self.largest:
            self.fail(f"{number} is not in the range -{self.largest}<=x<={self.largest}", param, ctx)
        return number


QUEUE_ID = WholeNumber(0, LARGEST_INT)
OFFSET = WholeNumber(0, LARGEST_LONG)
COUNT = WholeNumber(1, LARGEST_LONG)
COUNT_FROM_AN_END = SignedNumber(LARGEST_LONG)
DELAY_LEVEL = WholeNumber(1, LARGEST_INT)
JAVA_INT = click.IntRange(-LARGEST_INT - 1, LARGEST_INT)
