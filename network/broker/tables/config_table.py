"""One of the broker's configured tables: what a file of config/ says by name, and the version of its data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError, UnreadableError
from rmqctl.network.remoting.services import Tell
from rmqctl.store.config.config_files import read_config
from rmqctl.store.config.homes import refuse_database
from rmqctl.store.store_files import StoreFiles

NO_VERSION = {"counter": 0, "stateVersion": 0, "timestamp": 0}
"""DataVersion of a table that no file holds."""


class ConfigTable(NamedTuple):
    """`rows`: the table, empty where no file holds one; `content`: all that the file holds."""

    rows: dict[Any, Any]
    version: dict[Any, Any]
    content: Mapping[Any, Any] = {}


def config_table(
    files: StoreFiles, file: str, table: str, tell: Tell, without: str, *, is_written: bool = False
) -> ConfigTable:
    """The field `table` of config/`file`. A damaged file holds none, which is told with what follows: `without`; but
    where it is going to be written, that raises CorruptError or UnreadableError, and UnsupportedError where the broker
    has the table in a RocksDB."""
    if is_written:
        refuse_database(files.layout.config / file)
    try:
        content = read_config(files.layout.config / file)
    except (CorruptError, UnreadableError) as error:
        if is_written:
            error.hint = "mend the file or move it away: it would be written anew"
            raise
        tell(f"{without}: {error}")
        content = None
    if not isinstance(content, dict):
        return ConfigTable({}, NO_VERSION)
    rows, version = content.get(table), content.get("dataVersion")
    rows = rows if isinstance(rows, dict) else {}
    return ConfigTable(rows, version if isinstance(version, dict) else NO_VERSION, content)
