"""The columns of messages that a command line names."""

from __future__ import annotations

from collections.abc import Sequence

from rmqctl.formats.errors import UsageError
from rmqctl.messages.message_json import ALL_COLUMNS, EXACT_COLUMNS


def column_list(text: str | None) -> list[str] | None:
    """The names of a list with commas, None for None; UsageError for a list of nothing."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError("--columns names no column")
    return names


def known_columns(names: Sequence[str] | None) -> list[str] | None:
    """The fields asked for; UsageError for a name that is none, or that comes twice."""
    known = (*ALL_COLUMNS, *EXACT_COLUMNS)
    if names is None:
        return None
    for name in names:
        if name not in known:
            raise UsageError(f"there is no column {name!r}", hint=f"the columns are {', '.join(known)}")
        if list(names).count(name) > 1:
            raise UsageError(f"column {name!r} is asked for twice")
    return list(names)
