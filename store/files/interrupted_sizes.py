"""Which sizes an interrupted change that kept nothing had chosen: once the old files are gone, only its note tells."""

from __future__ import annotations

from formats.errors import RmqctlError
from store.files.journal_folder import INTERRUPTED, read_state
from store.files.journal_log import folders
from store.files.layout import StoreLayout

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
