"""Config JSON as the broker writes it: maps with bare integer keys, which JSON proper forbids (spec/formats.md 11)."""

from __future__ import annotations

import json
import re
from typing import Any

from formats.errors import CorruptError

# a string is matched first so that digits inside it are never taken for a key
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<before>[{,]\s*)(?P<key>-?\d+)(?=\s*:)', re.DOTALL)
# marks a key that stood without quotes; U+0000 cannot stand raw in JSON text
_BARE = "\x00"
MAXIMUM_SIZE = 64 * 1024 * 1024


def parse_config_json(text: str) -> Any:
    """Python values of `text`; bare integer keys become int, quoted ones stay str. CorruptError if unparsable."""
    if len(text) > MAXIMUM_SIZE:
        raise CorruptError(f"config JSON of {len(text)} characters is larger than any broker writes")

    def quote(match: re.Match[str]) -> str:
        key = match.group("key")
        return match.group(0) if key is None else f'{match.group("before")}"\\u0000{key}"'

    try:
        return json.loads(_TOKEN.sub(quote, text), object_pairs_hook=_object)
    except RecursionError as error:
        raise CorruptError("config JSON is nested too deeply") from error
    except ValueError as error:
        raise CorruptError(f"config JSON does not parse: {error}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[Any, Any]:
    return {int(key[1:]) if key.startswith(_BARE) else key: value for key, value in pairs}


def format_config_json(value: Any) -> str:
    """`value` in the broker's form: tabs, no space behind the colon, int keys bare (fastjson 1.2, PrettyFormat)."""
    return _format(value, 0)


def _format(value: Any, depth: int) -> str:
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if not value:
        return "{}"
    outer, inner = "\n" + "\t" * depth, "\n" + "\t" * (depth + 1)
    if all(isinstance(key, int) for key in value):
        # fastjson breaks the line of such a map only before the closing brace
        return "{" + ",".join(f"{key}:{_format(item, depth + 1)}" for key, item in value.items()) + outer + "}"
    members = [
        f"{inner}{key if isinstance(key, int) else json.dumps(key, ensure_ascii=False)}:{_format(item, depth + 1)}"
        for key, item in value.items()
    ]
    return "{" + ",".join(members) + outer + "}"
