"""Config JSON as the broker writes it: maps with bare integer keys, which JSON proper forbids (docs/formats.md)."""

from __future__ import annotations

import json
import re
from typing import Any

from rmqctl.formats.errors import CorruptError

# A string is matched first so that digits inside it are never taken for a key. One without an end is matched up to the
# end of the text, and nothing is tried twice: damaged text must not take quadratic time.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|(?P<before>[{,]\s*+)(?P<key>-?[0-9]++)(?=\s*+:)', re.DOTALL)
# marks a key that stood without quotes; one with quotes that begins like this gets the mark twice
_BARE = "\x00"
_BARE_ESCAPED = "\\u0000"
_IS_KEY = re.compile(r"\s*+:")
_NOT_PLAIN = object()
# A broker takes up to 2 GiB (MixAll#file2String). A table of this size, a hundred million offsets, is read here in ten
# times its size of memory.
MAXIMUM_SIZE = 512 * 1024 * 1024
# far above any file of a broker, far below what Python's own recursion bears
MAXIMUM_DEPTH = 100


def parse_config_json(text: str) -> Any:
    """Python values of `text`; bare integer keys become int, quoted ones stay str. CorruptError if unparsable."""
    if len(text) > MAXIMUM_SIZE:
        raise CorruptError(f"config JSON of {len(text)} characters is larger than what is read here")

    def quote(match: re.Match[str]) -> str:
        key = match.group("key")
        if key is not None:
            return f'{match.group("before")}"{_BARE_ESCAPED}{key}"'
        string = match.group(0)
        if string.startswith('"' + _BARE_ESCAPED) and _IS_KEY.match(text, match.end()):
            return f'"{_BARE_ESCAPED}{string[1:]}'
        return string

    try:
        value = _plain(text)
        if value is _NOT_PLAIN:
            value = json.loads(_TOKEN.sub(quote, text), object_pairs_hook=_object)
        if _is_deeper(value, MAXIMUM_DEPTH):
            raise CorruptError("config JSON is nested too deeply")
        return value
    except RecursionError as error:
        raise CorruptError("config JSON is nested too deeply") from error
    except ValueError as error:
        raise CorruptError(f"config JSON does not parse: {error}") from error


def _plain(text: str) -> Any:
    """What `text` says if it is JSON proper, as most is that clients send: the same without a look at each token."""
    try:
        return json.loads(text)
    except ValueError:
        return _NOT_PLAIN


def _is_deeper(value: Any, depth: int) -> bool:
    """Whether lists and maps are nested more than `depth` deep."""
    level = [value]
    for _ in range(depth):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.values()
            elif isinstance(one, list):
                inner += one
        level = [one for one in inner if isinstance(one, dict | list)]
        if not level:
            return False
    return True


def _object(pairs: list[tuple[str, Any]]) -> dict[Any, Any]:
    return {_key(key) if key.startswith(_BARE) else key: value for key, value in pairs}


def _key(marked: str) -> int | str:
    key = marked.removeprefix(_BARE)
    return key if key.startswith(_BARE) else int(key)


def format_config_json(value: Any) -> str:
    """`value` in the broker's form: tabs, no space behind the colon, int keys bare (fastjson 1.2, PrettyFormat)."""
    return _format(value, 0)


def _format(value: Any, depth: int) -> str:
    if isinstance(value, list | tuple):
        # inside may be maps with int keys, which json would quote
        return "[" + ",".join(_format(item, depth + 1) for item in value) + "]"
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
