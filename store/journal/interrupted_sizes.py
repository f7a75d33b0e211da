"""Which sizes an interrupted change that kept nothing had chosen: once the old files are gone, only its note tells."""

from __future__ import annotations

from rmqctl.formats.errors import RmqctlError
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.journal.kept.folder import INTERRUPTED, read_state
from rmqctl.store.journal.log import folders
from rmqctl.store.store_files import StoreFiles

SIZES = "sizes"
"""In the head of a change: sizes by the names of StoreConfig."""


def interrupted_sizes(layout: StoreLayout) -> dict[str, int]:
    """Sizes by the names of StoreConfig, of the last such change; {} if there is none."""
    for folder in reversed(folders(layout)):
        try:
            head = read_state(folder)
        except RmqctlError:  # whoever changes the store is told; a size is not to be had from it
            continue
        sizes = head.get(SIZES)
        if head["state"] == INTERRUPTED and isinstance(sizes, dict):
            return {str(name): size for name, size in sizes.items() if isinstance(size, int) and size > 0}
    return {}


def keep_interrupted_sizes(files: StoreFiles) -> None:
    """Make new files as a change that was interrupted and kept nothing had begun to, where the configuration says
    nothing else: before queues and index are changed."""
    known = {name: size for name, size in interrupted_sizes(files.layout).items() if name in StoreConfig._fields}
    missing = {name: size for name, size in known.items() if getattr(files.config, name) is None}
    if missing:
        files.take_sizes(missing)
