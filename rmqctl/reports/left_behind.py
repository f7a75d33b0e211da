"""Names what killed processes left beside what a command makes or looks at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.output.output import Output

_SHOWN = 5


def tell_left_behind(output: Output, *directories: Path) -> None:
    """Say on stderr which unfinished files and folders lie in `directories` whose processes are gone. Nothing is
    removed: whoever made them may want to know first."""
    from rmqctl.output.cells import human_size
    from rmqctl.store.outputs.staging import left_behind

    found = [path for directory in dict.fromkeys(directories) for path in left_behind(directory)]
    for path in found[:_SHOWN]:
        output.talk(f"left by a process that is gone: {path} ({human_size(_size(path))}); it may be removed")
    if len(found) > _SHOWN:
        output.talk(f"and {len(found) - _SHOWN} more like it")


def _size(path: Path) -> int:
    from rmqctl.formats.errors import UnreadableError
    from rmqctl.store.files.trees import tree_on_disk_bytes

    try:
        return tree_on_disk_bytes(path)
    except (FileNotFoundError, UnreadableError):  # it is just being removed, or another user's
        return 0
