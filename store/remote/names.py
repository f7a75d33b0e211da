"""Which names, sizes and times of a server's files a folder of this machine can stand for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rmqctl.formats.errors import UnreadableError
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.remote.file_system import Listed

# of what the file systems of this machine count, bytes and ns
_LARGEST = 2**63 - 1


def refuse_names(address: str, listed: list[Listed], folders: list[str]) -> None:
    """UnreadableError for a name that would lead out of the folder, for one that a file has and a folder, too, and for
    sizes and times that no file has: a server may say anything."""
    hint = "give it another name there, or copy the store here without it"
    names = [file.name for file in listed]
    for name in (*names, *folders):
        if not all(is_safe_topic(part) for part in name.split("/")):
            raise UnreadableError("this name cannot be that of a file here", file=f"{address}/{name!r}", hint=hint)
    above = {path.as_posix() for name in (*names, *folders) for path in Path(name).parents} | set(folders)
    for name, count in Counter(names).items():
        if count > 1 or name in above:
            raise UnreadableError("there are two of this name", file=f"{address}/{name}", hint=hint)
    for file in listed:
        if not (0 <= file.size <= _LARGEST and 0 <= (file.modified_ns or 0) <= _LARGEST):
            said = f"{file.size} bytes, changed {file.modified_ns} ns after 1970: no file has that"
            raise UnreadableError(said, file=f"{address}/{file.name}", hint=hint)
