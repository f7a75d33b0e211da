"""Small folders of index files that tests fill, and what an index says of a key, as a broker asks it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rmqctl.formats.checksums import key_hash
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.index.index_service import IndexService

CONFIG = StoreConfig(max_hash_slot_num=10, max_index_num=20)


def service_of(folder: Path, config: StoreConfig = CONFIG) -> IndexService:
    """The index files of `folder`."""
    service = IndexService(folder, config, Descriptors())
    service.load()
    return service


def filled_service(folder: Path, count: int, config: StoreConfig = CONFIG) -> IndexService:
    """The same with so many entries more, of seven keys."""
    service = service_of(folder, config)
    for number in range(count):
        service.put("T", f"key{number % 7}", number * 100, 1_700_000_000_000 + number)
    service.close()
    return service


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
