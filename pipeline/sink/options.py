"""The options of a write: what may be given to `df.write.format("rocketmq")` and `writeStream`, checked."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import UsageError
from rmqctl.pipeline.source.options import is_true
from rmqctl.store.config.config import StoreConfig, read_broker_conf
from rmqctl.store.files.presence import is_file

SINK_OPTIONS: dict[str, str] = {
    "path": "the store's directory (or `save(PATH)`, `start(PATH)`), which the driver writes; folders beside it are "
    "written by every executor",
    "config": "a broker.conf, read by the driver: sizes of a new store's files, paths, delay levels",
    "as_stored": "true: the rows are copies of stored messages and keep store time and store host; false: they are new "
    "messages, which are delayed if they ask for it; false",
    "query": "streams: the name under which the store remembers which micro-batch was the last; if not given the "
    "query's own id, which its checkpoint holds",
    "checkpointLocation": "streams: Spark's own",
}
"""Every option with its meaning."""

_KNOWN = {name.lower(): name for name in SINK_OPTIONS} | {"store": "path", "asstored": "as_stored"}


class SinkOptions(NamedTuple):
    """Options of a write. `path` is absolute and follows links."""

    path: Path
    config: str | None = None
    as_stored: bool = False
    query: str | None = None
    checkpoint: str | None = None

    def store_config(self) -> StoreConfig:
        """Settings of the broker.conf, RocketMQ's defaults without. Read where it lies: on the driver."""
        return read_broker_conf(Path(self.config)) if self.config else StoreConfig()

    def query_name(self) -> str:
        """Under what the store remembers the micro-batches of this query. UsageError if nothing says so.

        Without a name it is the id that Spark keeps in the checkpoint: with a new checkpoint micro-batches are counted
        from 0 again, and these are others. Where the checkpoint lies on no file system of this machine, its address has
        to do.
        """
        if self.query:
            return self.query
        if not self.checkpoint:
            raise UsageError(
                "nothing says which query this is, so a micro-batch that comes again could not be told from another",
                hint='give .option("checkpointLocation", DIR), or .option("query", NAME)',
            )
        return _id_of_query(Path(self.checkpoint.removeprefix("file://").removeprefix("file:"))) or self.checkpoint


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The options of a write, names in any case; UsageError for one that is unknown, missing or says nothing."""
    values: dict[str, str] = {}
    for name, text in given.items():
        known = _KNOWN.get(name.lower())
        if known is None:
            raise UsageError(
                f"writing to a store has no option {name!r}", hint=f"its options are {', '.join(SINK_OPTIONS)}"
            )
        values[known] = text.strip()
    if not values.get("path"):
        raise UsageError("no store is named", hint='give .option("path", DIR), .save(DIR) or .start(DIR)')
    return SinkOptions(
        Path(os.path.realpath(values["path"])),
        values.get("config") or None,
        is_true("as_stored", values.get("as_stored", "false")),
        values.get("query") or None,
        values.get("checkpointLocation") or None,
    )


def _id_of_query(checkpoint: Path) -> str | None:
    """The id of the query with this checkpoint (StreamMetadata); None if it cannot be read here."""
    path = checkpoint / "metadata"
    try:
        content = json.loads(path.read_bytes()) if is_file(path) else None
    except (OSError, ValueError):
        return None
    found = content.get("id") if isinstance(content, dict) else None
    return found if isinstance(found, str) and found else None
