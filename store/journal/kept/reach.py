"""Which files a journal may change: those of its store, and what the store's links and its configuration lead to.

A journal may have been written by anyone, so where it leads out of the store's own directory it is believed only if it
was written by this user, or root, for the store that stands here now.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import RefusedError
from rmqctl.store.files.layout import StoreLayout, is_file_name
from rmqctl.store.files.reading import named


@dataclass(frozen=True, slots=True)
class Reach:
    """What the journal `journal` of the store at `root` may change.

    `logs`: directories of the commitlog. `places`: where links out of the store led when the change was made, as real
    paths: directories, and single files.
    """

    journal: Path
    root: Path
    logs: tuple[Path, ...]
    places: tuple[Path, ...] = ()

    def holds(self, path: Path, *, is_directory: bool = False, is_moved: bool = False) -> bool:
        """Whether `path` may be changed; of a directory only the time is. What is moved is a link itself, and not what
        it leads to."""
        tops = (self.root, *self.logs)
        # the directory above a commitlog that stands elsewhere gets its time back too, but nothing else is done to it
        if not any(path.is_relative_to(top) or (is_directory and top.is_relative_to(path)) for top in tops):
            return False
        if is_directory or path in self.logs or (path.parent in self.logs and is_file_name(path.name)):
            return True
        real = Path(os.path.realpath(path.parent)) / path.name if is_moved else Path(os.path.realpath(path))
        return any(real.is_relative_to(top) for top in (Path(os.path.realpath(self.root)), *self.places))


def places_outside(layout: StoreLayout, directories: Iterable[Path], files: Iterable[Path]) -> list[str]:
    """The real paths of those that are not below the real path of the store: `directories` in which something comes
    or goes, and `files` whose bytes change."""
    root = os.path.realpath(layout.root)
    found = {os.path.realpath(path) for path in (*directories, *files)}
    return sorted(place for place in found if not Path(place).is_relative_to(root))


def reach_of(layout: StoreLayout, journal: Path, head: dict[str, Any]) -> Reach:
    """What a journal may change that has this `head`."""
    places = head.get("places") if is_believed(layout, journal, head) else ()
    logs = tuple(Path(os.path.abspath(directory)) for directory in layout.commitlog)
    return Reach(journal, layout.root, (*layout.commitlog, *logs), tuple(Path(str(place)) for place in places or ()))


def is_believed(layout: StoreLayout, journal: Path, head: dict[str, Any]) -> bool:
    """Whether a journal may lead out of the store's directory: written by this user or root, and for this very store,
    as a copy of a store has links to what is the other one's."""
    return _owner(journal) in (0, os.geteuid()) and head.get("store") == os.path.realpath(layout.root)


def _owner(path: Path) -> int:
    with named(path):
        return path.lstat().st_uid


def remembered_layout(layout: StoreLayout, journal: Path, head: dict[str, Any]) -> StoreLayout:
    """The store as the change of this journal knew it: with the commitlog where it was then.

    RefusedError where the configuration says something else, or where that has to be named by a configuration.
    """
    noted = head.get("commitlog")
    if not isinstance(noted, list) or not all(isinstance(text, str) and "\0" not in text for text in noted):
        return layout
    logs = tuple(layout.root / text for text in noted)
    if not logs or _real(logs) == _real(layout.commitlog):
        return layout
    is_default = layout.commitlog == (layout.root / "commitlog",)
    if is_default and is_believed(layout, journal, head):
        return StoreLayout(layout.root, logs)
    where = ", ".join(str(path) for path in logs)
    raise RefusedError(
        f"the change was made with the commitlog in {where}",
        file=journal,
        hint="name the broker.conf that says so with -c (storePathCommitLog)"
        if is_default
        else "the configuration says something else: use the one that the change was made with",
    )


def _real(paths: Iterable[Path]) -> set[str]:
    return {os.path.realpath(path) for path in paths}
