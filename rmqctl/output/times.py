"""Points in time as people write them, to milliseconds since 1970 and back.

Understood are
* milliseconds (`1700000000000`) and seconds: ten digits (`1700000000`), a fraction (`1700000000.5`) or `@` before them;
* ISO 8601 with or without a zone (`2023-11-14T22:13:20.5+01:00`), a date (its midnight), and mqadmin's form
  (`2023-11-14#22:13:20:500`, UtilAll#YYYY_MM_DD_HH_MM_SS_SSS);
* `now`, `today`, `yesterday`, both also with a time of day (`today 9:00`);
* a span before now: `90s ago`, `1d12h ago`, `-2h`.

What names no zone is in the one that the command line names (--tz), else in UTC, as everything that rmqctl prints is.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta, timezone, tzinfo

from rmqctl.formats.errors import UsageError, format_time

__all__ = ["HINT", "format_time", "now_ms", "parse_span", "parse_time"]

HINT = (
    "times are milliseconds (1700000000000), seconds (1700000000), ISO 8601, in UTC unless it or --tz names a zone "
    "(2023-11-14T22:13:20), a date, 2023-11-14#22:13:20:000, now, 'today 9:00', yesterday, or a span such as '2h ago' "
    "or -2h"
)

_EPOCH = datetime(1970, 1, 1)
_LARGEST = (1 << 63) - 1
# ten digits are seconds from 2001 to 2286; as milliseconds they would be a few months of 1970
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
_MQADMIN = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})#([0-9]{2}:[0-9]{2}:[0-9]{2})(?::([0-9]{3}))?")
_DAY = re.compile(r"(today|yesterday)(?:\s+([0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?))?")
_OFFSET = re.compile(r"([+-])([0-9]{2}):?([0-9]{2})")


def now_ms() -> int:
    """This machine's clock, milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def parse_zone(text: str) -> tzinfo:
    """A time zone by its name (`Europe/Berlin`), as an offset (`+08:00`), `UTC`, or `local`, this machine's.

    UsageError where there is no such zone, or this machine does not know it.
    """
    offset = _OFFSET.fullmatch(text)
    if text.upper() in ("UTC", "Z"):
        return UTC
    if offset is not None and int(offset[2]) < 24 and int(offset[3]) < 60:
        length = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return timezone(-length if offset[1] == "-" else length)
    hint = "name it as Europe/Berlin, +08:00, UTC or local"
    try:
        from zoneinfo import ZoneInfo

        return ZoneInfo(_local_zone() if text == "local" else text)
    except (ValueError, OSError, KeyError) as error:
        raise UsageError(f"there is no time zone {text!r} here", hint=hint) from error


def _local_zone() -> str:
    """The name of this machine's zone; UTC where nothing says it. OSError, ValueError as they come."""
    import os

    named = os.environ.get("TZ", "").lstrip(":")
    if named:
        return named
    path = os.path.realpath("/etc/localtime")
    return path.rpartition("zoneinfo/")[2] if "zoneinfo/" in path else "UTC"


def parse_time(text: str, now: int | None = None, zone: tzinfo = UTC) -> int:
    """Milliseconds since 1970 of a time as described above; `now` (ms) is what spans count from, by default the clock.

    UsageError with accepted forms if `text` is invalid, or a time of day that `zone` does not have or has twice, where
    clocks are set forward or back. Fractions below a millisecond are dropped.
    """
    cleaned = text.strip().lower()
    if cleaned.isascii() and cleaned.isdigit():
        return _checked(_number(int(cleaned)) if len(cleaned) < 20 else _LARGEST + 1, text)
    if seconds := re.fullmatch(r"@([0-9]{1,18})(?:\.([0-9]+))?|([0-9]{10})\.([0-9]+)", cleaned):
        whole, fraction = seconds[1] or seconds[3], seconds[2] or seconds[4] or ""
        return _checked(int(whole) * 1000 + int(fraction[:3].ljust(3, "0")), text)
    base = now_ms() if now is None else now
    if cleaned == "now":
        return base
    if cleaned.endswith("ago"):
        return _checked(base - _parse_span(cleaned.removesuffix("ago"), text), text)
    if re.match(r"-\s*[0-9.]+\s*[a-z]", cleaned):
        return _checked(base - _parse_span(cleaned[1:], text), text)
    if day := _DAY.fullmatch(cleaned):
        return _of_day(day[1], day[2], base, zone, text)
    if form := _MQADMIN.fullmatch(cleaned):
        return _parse_iso(f"{form[1]}T{form[2]}.{form[3] or '000'}", text, zone)
    if _ISO.fullmatch(cleaned):
        return _parse_iso(cleaned.upper(), text, zone)
    raise UsageError(f"'{text}' is not a time", hint=_slip(cleaned) or HINT)


def _slip(cleaned: str) -> str | None:
    """What was meant, where something is missing only."""
    if _SPAN.match(cleaned) and _SPAN.sub("", cleaned) == "":
        return f"did you mean '{cleaned} ago'?"
    if _DAY.fullmatch(f"today {cleaned}"):
        return f"did you mean 'today {cleaned}'?"
    return None


def _of_day(day: str, time_of_day: str | None, base: int, zone: tzinfo, text: str) -> int:
    date = (datetime.fromtimestamp(base / 1000, zone) - timedelta(days=day == "yesterday")).date()
    hour, _, rest = (time_of_day or "0:00").partition(":")
    return _parse_iso(f"{date.isoformat()}T{hour:0>2}:{rest}", text, zone)


def parse_span(text: str) -> int:
    """Return the milliseconds of a length of time such as `72h` or `1d12h`; UsageError for other texts."""
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


def _number(number: int) -> int:
    """Return the milliseconds of a bare number: seconds if they are of these centuries, because no message is as old as
    the number would be in milliseconds."""
    return number * 1000 if _SECONDS.start <= number < _SECONDS.stop else number


def _parse_iso(iso: str, text: str, zone: tzinfo) -> int:
    try:
        moment = datetime.fromisoformat(iso)
        if moment.tzinfo is None:
            moment = _in_zone(moment, zone, text)
        return _checked((moment - _EPOCH.replace(tzinfo=UTC)) // timedelta(milliseconds=1), text)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"'{text}' is not a time: {error}", hint=HINT) from error


def _in_zone(moment: datetime, zone: tzinfo, text: str) -> datetime:
    """The moment in a zone; UsageError where its clocks never show it, or twice."""
    if zone is UTC:
        return moment.replace(tzinfo=UTC)
    first, second = (moment.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    if first.utcoffset() == second.utcoffset():
        return first.astimezone(UTC)
    offsets = [one.isoformat()[-6:] for one in (first, second)]
    if first.astimezone(UTC).astimezone(zone).replace(tzinfo=None) == moment:
        raise UsageError(
            f"'{text}' is there twice in {zone}, where clocks are set back then",
            hint=f"say which one: with {offsets[0]} or {offsets[1]} at its end",
        )
    raise UsageError(
        f"'{text}' does not exist in {zone}: clocks are set forward at that time",
        hint=f"add the UTC offset: {offsets[0]} or {offsets[1]}",
    )


def _checked(milliseconds: int, text: str) -> int:
    if not 0 <= milliseconds <= _LARGEST:
        raise UsageError(f"'{text}' is out of range", hint="milliseconds since 1970 from 0 to 2^63-1")
    return milliseconds
