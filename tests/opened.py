"""Golden stores opened for reading, once per test session: for tests that only look."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from rmqctl.store.config.config import StoreConfig, read_broker_conf
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles
from tests.goldens import base_of, broker_conf, golden, properties, truth

_MOST_OPEN = 8


class _Folder:
    path: Path | None = None


def _folder() -> Path:
    if _Folder.path is None:
        # below pytest's own folder if there is one: TMPDIR is left alone
        _Folder.path = Path(tempfile.mkdtemp(prefix="opened-"))
        import atexit
        import shutil

        atexit.register(shutil.rmtree, _Folder.path, ignore_errors=True)
    return _Folder.path


@functools.cache
def store_path(name: str) -> Path:
    """A copy of golden `name` that all tests of a session share: nobody may change it."""
    return golden(name, _folder() / f"of-{name}")


@functools.cache
def reader(name: str) -> StoreReader:
    """The shared copy, opened without a configuration unless the paths of its commitlog need one."""
    path = store_path(name)
    config = StoreConfig()
    if "store.storePathCommitLog" in properties(name):
        config = read_broker_conf(broker_conf(name, path.parent))
    files = StoreFiles(path, config)
    # as many stores as there are tests of: together they would have thousands of files open
    files.descriptors._maximum_open = _MOST_OPEN
    return StoreReader(files)


def version_of(name: str) -> int:
    """Major version of the RocketMQ whose truth this is: 4 or 5."""
    return int(truth(name).summary["version"][1])


def known_messages(name: str) -> dict[int, dict[str, object]]:
    """Every message that RocketMQ ever saw in this store or in the one it was made from, by physical offset."""
    source = base_of(name)
    rows = list(truth(name).messages)
    if source is not None:
        rows = [*truth(source).messages, *rows]
    return {int(row["phyOffset"]): row for row in rows}


def damaged_messages(name: str) -> set[int]:
    """Offsets of messages that RocketMQ hands out although their body is not what was stored."""
    source = base_of(name)
    whole = {row["phyOffset"]: row["bodySha256Raw"] for row in truth(source).messages} if source else {}
    return {
        int(row["phyOffset"])
        for row in truth(name).messages
        if not row["checkOk"] or row["bodySha256Raw"] != whole.get(row["phyOffset"], row["bodySha256Raw"])
    }
