"""offsets.json of a broadcasting consumer: the offsets that the client keeps itself (LocalFileOffsetStore).

The client writes `.rocketmq_offsets/CLIENT_ID/GROUP/offsets.json` below its home directory; names of the members are
queues, written as objects: `{"offsetTable":{{"brokerName":"broker-a","queueId":3,"topic":"T"}:17}}`.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.errors import NotFoundError, RefusedError, UnreadableError, counted
from rmqctl.store.config.config_files import backup_of
from rmqctl.store.config.config_text import Form, Member, ObjectName, TablesText, read_tables_text, versions_taking
from rmqctl.store.config.releases import VERSIONS
from rmqctl.store.files import io
from rmqctl.store.files.reading import is_there, read_small_file

CLIENT_FILE = "offsets.json"
LARGEST = 64 * 1024 * 1024 + 1
"""Bytes of such a file that are read: far above any that a client writes."""
_TABLE = "offsetTable"
_IS_CLIENT = re.compile(rb'\s*+\{\s*+"offsetTable"\s*+:\s*+\{\s*+\{')
_WITHOUT = "the client starts without these offsets, where its consumeFromWhere says. Stop it first if they matter"
_WHOLE = re.compile(r"[+-]?[0-9]++")


class ClientOffset(NamedTuple):
    """The offset of one queue, None for a name that the queue lacks; `begin` and `end`: its bytes in the file."""

    topic: str | None
    broker_name: str | None
    queue_id: int | None
    offset: int
    begin: int
    end: int


class ClientOffsets(NamedTuple):
    """`offsets`: in the file's order; of a damaged file those before the damage. `damage`: why no client loads the
    file, at the byte `damaged_at`. `why_not`: versions of the client that do not load it, with the reason."""

    offsets: list[ClientOffset]
    damage: str | None = None
    damaged_at: int = 0
    why_not: str = ""


class ClientPlace(NamedTuple):
    """The client ID and the group whose offsets a file holds, by its path; None where the path does not say."""

    client_id: str | None
    group: str | None


def is_client_file(path: Path) -> bool:
    """Whether the file has the name of a client's offsets, or of their backup."""
    return path.name.removesuffix(".bak") == CLIENT_FILE


def is_client_text(head: bytes) -> bool:
    """Whether a file that begins with `head` holds offsets by queues as clients write them."""
    return _IS_CLIENT.match(head) is not None


def client_place(path: Path) -> ClientPlace:
    """Whose offsets a file holds: clients keep them in `CLIENT_ID/GROUP/offsets.json`, with an `@` in the ID."""
    parts = Path(os.path.abspath(path)).parts
    if is_client_file(path) and len(parts) > 3 and "@" in parts[-3]:
        return ClientPlace(parts[-3], parts[-2])
    return ClientPlace(None, None)


def read_client_offsets(data: bytes) -> ClientOffsets:
    """The offsets in `data`, as a client loads them; of damaged text those before the damage."""
    if not data.strip():
        return ClientOffsets([], "the file is empty: a write of it was cut short")
    text = read_tables_text(data)
    found = _offsets_of(text)
    if text.damage is not None and found.damage is None:
        ends = text.read_to >= len(data.rstrip())
        why = (
            f"the text ends at byte {len(data)} before it is complete"
            if ends
            else (f"the text does not parse at byte {text.read_to}")
        )
        return found._replace(damage=why, damaged_at=max((one.end for one in found.offsets), default=0))
    if found.damage is not None:
        return found
    root = text.root
    if root is not None and not isinstance(root, dict):
        return found._replace(damage="the text is not an object with a table offsetTable")
    if isinstance(root, dict) and not isinstance(root.get(_TABLE), dict | None):
        return found._replace(damage="offsetTable is not a table of offsets by queue")
    return found


def next_of_damaged(path: Path) -> str:
    """What a client does at its next start where its file `path` is empty or damaged, and what to do."""
    if path.name.endswith(".bak"):
        first = path.name.removesuffix(".bak")
        return f"a client reads this backup only while {first} is missing, empty or damaged: dump that file next"
    backup = backup_of(path)
    try:
        data = read_small_file(backup, LARGEST)
    except FileNotFoundError:
        return f"there is no {backup.name}: {_WITHOUT}"
    except UnreadableError as error:
        return f"the client loads {backup.name} instead, which cannot be read here: {error.message}"
    if not data:
        return f"{backup.name} is empty: {_WITHOUT}"
    kept = read_client_offsets(data)
    if kept.damage is not None:
        return (
            f"{backup.name} is damaged, too: the client does not start (MQClientException: maybe fastjson version too "
            "low). Stop it and move both files away: it then begins where its consumeFromWhere says"
        )
    return (
        f"the client loads {backup.name} instead (LocalFileOffsetStore#load), which is sound and holds "
        f"{counted(len(kept.offsets), 'offset')}, and writes this file again. Keep a copy of {backup.name} before the "
        f"client starts; `rmqctl dump {shlex.quote(str(backup))}` shows it"
    )


def _offsets_of(text: TablesText) -> ClientOffsets:
    offsets: dict[tuple[Any, ...], ClientOffset] = {}
    forms = list(text.forms)
    for member in text.members:
        if member.table != _TABLE:
            continue
        found = _offset_of(member, forms)
        if found is None:
            damage = "the entry does not give the offset of a queue: no client loads the file"
            return ClientOffsets(list(offsets.values()), damage, member.begin)
        offsets.pop(found[:3], None)  # of two for one queue a client takes the last
        offsets[found[:3]] = found
    takers = versions_taking(tuple(forms))
    why = [form.label for form in dict.fromkeys(forms) if form.versions != frozenset(VERSIONS)]
    without = [version for version in VERSIONS if version not in takers]
    why_not = f"{' and '.join(without)}: {', '.join(why)}" if without else ""
    return ClientOffsets(list(offsets.values()), why_not=why_not)


def _offset_of(member: Member, forms: list[Form]) -> ClientOffset | None:
    """The offset that a member of the table is; None where clients refuse it."""
    name = member.name
    if isinstance(name, str):  # fastjson 1 takes the object in quotes, too
        forms.append(Form.TEXT_FOR_OBJECT)
        inner = read_tables_text(name.encode("utf-8", "surrogateescape"))
        queue = inner.root if inner.damage is None else None
    else:
        queue = dict(name.members) if isinstance(name, ObjectName) else None
    offset = _number(member.value)
    if not isinstance(queue, dict) or offset is None:
        return None
    queue_id = _number(queue.get("queueId", 0))
    topic, broker_name = _text(queue.get("topic")), _text(queue.get("brokerName"))
    return ClientOffset(topic, broker_name, queue_id, offset, member.begin, member.end)


def _number(value: Any) -> int | None:
    """`value` as clients convert it to a number: texts of digits, too, and fractions without their fraction."""
    if isinstance(value, str):
        return int(value) if len(value) <= 20 and _WHOLE.fullmatch(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return str(value).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


# What can still be read of a damaged offsets.json, and of its backup, written again.


class MendedOffset(NamedTuple):
    """The offset of one queue in the new file. `source`: `file` or `backup`."""

    topic: str | None
    broker_name: str | None
    queue_id: int | None
    offset: int
    source: str


class MendedClientFile(NamedTuple):
    """What was written. `damage`: why clients do not load the old file and its backup, None for a sound one."""

    source: str
    target: str
    damage: str | None
    backup_damage: str | None
    offsets: list[MendedOffset]


def mend_client_file(path: Path, target: Path) -> MendedClientFile:
    """Write what `path` and its backup hold to the new file `target`. The file, which is newer, comes first.

    Raises: NotFoundError where neither holds an offset; RefusedError where `target` exists; UnreadableError;
    WriteFailedError.
    """
    if is_there(target):
        raise RefusedError("exists", file=target, hint="name a new file with --to")
    file, backup = _read(path), _read(backup_of(path))
    chosen: dict[tuple[str | None, str | None, int | None], MendedOffset] = {}
    for source, found in (("backup", backup), ("file", file)):
        for one in found.offsets:
            chosen[one[:3]] = MendedOffset(*one[:3], one.offset, source)
    if not chosen:
        raise NotFoundError(
            f"neither it nor its backup {backup_of(path).name} holds an offset that can be read",
            file=path,
            hint="move both files away: the client then begins where its consumeFromWhere says",
        )
    offsets = list(chosen.values())
    io.write_whole(target, client_text(offsets).encode("utf-8"))
    return MendedClientFile(str(path), str(target), file.damage, backup.damage, offsets)


def _read(path: Path) -> ClientOffsets:
    try:
        return read_client_offsets(read_small_file(path, LARGEST))
    except FileNotFoundError:
        return ClientOffsets([], "the file is not there")


def client_text(offsets: list[MendedOffset] | list[ClientOffset]) -> str:
    """Return offsets.json as clients write it: each name of the table is a queue as an object."""
    rows = []
    for one in offsets:
        queue = {"brokerName": one.broker_name, "queueId": one.queue_id, "topic": one.topic}
        known = {name: value for name, value in queue.items() if value is not None}
        rows.append(f"{json.dumps(known, ensure_ascii=False, separators=(',', ':'))}:{one.offset}")
    return '{\n\t"offsetTable":{' + ",".join(rows) + "\n\t}\n}"
