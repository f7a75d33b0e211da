"""Entries of the key index as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from rmqctl.formats.layouts import INDEX_ENTRY
from rmqctl.store.index.index_file import IndexFile
from rmqctl.store.scan.arrays import numbers
from rmqctl.store.store_files import StoreFiles

_CHUNK = 1 << 16
_ENTRY = INDEX_ENTRY.dtype()
_SECOND = 1000


def index_parts(files: StoreFiles) -> list[str]:
    """Names of the index files; what cannot be an index file is left out."""
    return [file.path.name for file in files.index.files]


def entry_columns(files: StoreFiles, name: str) -> Iterator[Mapping[str, pa.Array]]:
    """The entries of one file, as many as it has; the columns of the view `index_entries`."""
    for file in files.index.files:
        if file.path.name == name:
            yield from _entries(file)


def _entries(file: IndexFile) -> Iterator[Mapping[str, pa.Array]]:
    number = 1
    while number < file.header.index_count:
        data = file.read_entries(number, min(_CHUNK, file.header.index_count - number))
        entries = np.frombuffer(data[: len(data) - len(data) % INDEX_ENTRY.size], _ENTRY)
        rows = len(entries)
        if not rows:
            return  # the file is cut short
        hashes = entries["key_hash"].astype(np.int32)
        begin = np.int64(file.header.begin_timestamp)
        with np.errstate(over="ignore"):
            times = begin + entries["time_difference"].astype(np.int64) * _SECOND
        yield {
            "file": pa.repeat(file.path.name, rows),
            "entry": numbers(np.arange(number, number + rows, dtype=np.int32), pa.int32()),
            "key_hash": numbers(hashes, pa.int32()),
            "slot": numbers((hashes % file.geometry.slots).astype(np.int32), pa.int32()),
            "physical_offset": numbers(entries["physical_offset"].astype(np.int64), pa.int64()),
            "store_timestamp": numbers(times, pa.timestamp("ms", "UTC")),
            "previous_entry": numbers(entries["previous_entry"].astype(np.int32), pa.int32()),
        }
        number += rows
