"""Write the offsets of a broadcasting client again, from what can still be read of its damaged offsets.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.config_json import MAXIMUM_SIZE
from rmqctl.formats.errors import NotFoundError, RefusedError
from rmqctl.store.config.client_offsets import ClientOffset, ClientOffsets, read_client_offsets
from rmqctl.store.config.config_files import backup_of
from rmqctl.store.files import io
from rmqctl.store.files.reading import is_there, read_small_file


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
        return read_client_offsets(read_small_file(path, MAXIMUM_SIZE + 1))
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
