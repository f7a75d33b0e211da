"""How things are written in a text: a number of them, `1 unit points`, `2 units point`, lengths of time, moments."""

from __future__ import annotations


def counted(number: int, one: str, several: str | None = None) -> str:
    """The number with `one` or `several` behind it; `several` is `one` with an s if it is not given."""
    return f"{number} {one if number == 1 else several or one + 's'}"


_SPANS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000))


def lasting(milliseconds: int) -> str:
    """A length of time in its two largest units: `2 days 3 hours`; milliseconds where it is below a second."""
    rest = abs(milliseconds)
    parts: list[str] = []
    for unit, size in _SPANS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(counted(count, unit))
        if len(parts) == 2 or (parts and not count):
            break
    return " ".join(parts[:2]) or f"{abs(milliseconds)} ms"


def format_time(milliseconds: int) -> str:
    """ISO 8601 in UTC with milliseconds, `2023-11-14T22:13:20.000Z`.

    The bare number for what no calendar holds (before the year 1 or after 9999), which damaged bytes may well say.
    """
    from datetime import datetime, timedelta  # not for who only counts

    try:
        moment = datetime(1970, 1, 1) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return moment.isoformat(timespec="milliseconds") + "Z"
