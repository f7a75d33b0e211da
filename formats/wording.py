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


def lasting_in_short(milliseconds: int) -> str:
    """The same for a cell of a table, as exact as `lasting`: `2d 3h`, `16s`, `709ms`; with its sign."""
    if -1000 < milliseconds < 1000:
        return f"{milliseconds}ms"
    words = lasting(milliseconds).split()
    short = " ".join(count + unit[0] for count, unit in zip(words[::2], words[1::2], strict=True))
    return f"-{short}" if milliseconds < 0 else short


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


def joined_hints(*hints: str | None) -> str:
    """Several hints as one."""
    return "; ".join(hint for hint in hints if hint)


_addresses: dict[str, str] = {}


def stand_for(folder: str, address: str) -> None:
    """From now on everything below `folder`, an absolute path that nothing else is called, is told as below
    `address`."""
    _addresses[folder] = address


def forget_place(folder: str) -> None:
    """Take `stand_for` back."""
    _addresses.pop(folder, None)


def told(text: str) -> str:
    """The text with addresses in the place of folders that stand for them."""
    if _addresses:
        for folder, address in tuple(_addresses.items()):
            text = text.replace(folder, address)
    return text
