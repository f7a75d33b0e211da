"""What an index says of a key, as a broker asks it."""

from __future__ import annotations

from collections.abc import Iterator

from rmqctl.formats.hashing import key_hash
from rmqctl.store.index.index_service import IndexService


def offsets_of(service: IndexService, topic: str, key: str) -> Iterator[int]:
    """Physical offsets of messages that may have the key, newest first, each once. (IndexService#queryOffset)"""
    wanted = key_hash(topic, key)
    seen: set[int] = set()
    for file in reversed(service.files):
        with file.hold() as held:
            if not held:  # removed, or about to be: its messages are gone already
                continue
            for entry in file.chain(wanted):
                if entry.key_hash == wanted and entry.physical_offset not in seen:
                    seen.add(entry.physical_offset)
                    yield entry.physical_offset
