"""Points in time as people write them, to milliseconds since 1970 and back.

Understood are: milliseconds (`1700000000000`), ISO 8601 with or without a zone (`2023-11-14T22:13:20.5+01:00`;
without one it is UTC, as everything that rmqctl prints is), a date (midnight UTC), `now`, and a span before now
(`90s ago`, `2h ago`, `1d12h ago`).
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

from rmqctl.formats.errors import UsageError
from rmqctl.formats.wording import format_time

__all__ = ["HINT", "format_time", "now_ms", "parse_span", "parse_time"]

HINT = (
    "times are milliseconds (1700000000000), ISO 8601, in UTC unless it names a zone (2023-11-14T22:13:20), "
    "a date, now, or a span such as '2h ago'"
)

_EPOCH = datetime(1970, 1, 1)
_LARGEST = (1 << 63) - 1
# in seconds from 2001 to 2286, in milliseconds a few months of 1970
_SECONDS = range(10**9, 10**10)
_UNITS = {
    **dict.fromkeys(("ms",), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("w", "week", "weeks"), 7 * 86_400_000),
}
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*")
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9].*)?", re.IGNORECASE)


def now_ms() -> int:
    """This machine's clock, milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def parse_time(text: str, now: int | None = None) -> int:
    """Milliseconds since 1970 of a time as described above; `now` (ms) is what spans count from, by default the clock.

    UsageError with what would be understood if `text` is none of these. Fractions below a millisecond are dropped.
    """
    cleaned = text.strip().lower()
    if cleaned.isascii() and cleaned.isdigit():
        return _checked(_number(int(cleaned), text) if len(cleaned) < 20 else _LARGEST + 1, text)
    base = now_ms() if now is None else now
    if cleaned == "now":
        return base
    if cleaned.endswith("ago"):
        return _checked(base - _parse_span(cleaned.removesuffix("ago"), text), text)
    if _ISO.fullmatch(cleaned):
        return _parse_iso(cleaned.upper(), text)
    hint = HINT
    if _SPAN.match(cleaned) and _SPAN.sub("", cleaned) == "":
        hint = f"did you mean '{cleaned} ago'?"
    raise UsageError(f"'{text}' is not a time", hint=hint)


def parse_span(text: str) -> int:
    """Milliseconds of a length of time such as `72h` or `1d12h`; UsageError if `text` is none."""
    try:
        return _parse_span(text.strip().lower(), text)
    except UsageError as error:
        raise UsageError(f"'{text}' is not a length of time", hint="write it as 90s, 72h or 1d12h") from error


def _parse_span(span: str, text: str) -> int:
    total = 0.0
    position = 0
    span = span.strip()
    while position < len(span) and (part := _SPAN.match(span, position)):
        if part[2] not in _UNITS:
            raise UsageError(f"'{text}' is not a time: '{part[2]}' is no unit", hint="units are ms, s, m, h, d and w")
        total += float(part[1]) * _UNITS[part[2]]
        position = part.end()
    if not span or position < len(span):
        raise UsageError(f"'{text}' is not a time", hint=HINT)
    if total > _LARGEST:
        raise UsageError(f"'{text}' is out of range", hint="milliseconds since 1970 from 0 to 2^63-1")
    return round(total)


def _number(milliseconds: int, text: str) -> int:
    """A bare number; refused where it looks like seconds: no message is as old as it says in milliseconds."""
    if not _SECONDS.start <= milliseconds < _SECONDS.stop:
        return milliseconds
    raise UsageError(
        f"'{text}' is {format_time(milliseconds)} in milliseconds, which is what times are in here",
        hint=f"if seconds are meant ({format_time(milliseconds * 1000)}), write {milliseconds}000",
    )


def _parse_iso(iso: str, text: str) -> int:
    try:
        moment = datetime.fromisoformat(iso)
    except ValueError as error:
        raise UsageError(f"'{text}' is not a time: {error}", hint=HINT) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return _checked((moment - _EPOCH.replace(tzinfo=UTC)) // timedelta(milliseconds=1), text)


def _checked(milliseconds: int, text: str) -> int:
    if not 0 <= milliseconds <= _LARGEST:
        raise UsageError(f"'{text}' is out of range", hint="milliseconds since 1970 from 0 to 2^63-1")
    return milliseconds
