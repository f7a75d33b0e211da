"""Settings of a store: what a broker.conf says, RocketMQ's defaults for the rest (MessageStoreConfig)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import UnreadableError, UsageError
from rmqctl.store.files.layout import StoreLayout

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def _paths(listed: str | None) -> tuple[Path, ...]:
    return tuple(Path(part.strip()) for part in (listed or "").split(",") if part.strip())


class StoreConfig(NamedTuple):
    """The keys of MessageStoreConfig that matter to a store at rest, in snake_case, with their defaults.

    Sizes in bytes, intervals in ms, ratios in percent. A geometry of None is taken from the files, and from the
    default where there are none. `index_tags` is rmqctl's own: None goes by the store (store/index/tag_entries.py).
    """

    store_path_root_dir: str | None = None
    store_path_commit_log: str | None = None
    read_only_commit_log_store_paths: str | None = None
    store_type: str = "default"
    mapped_file_size_commit_log: int | None = None
    mapped_file_size_consume_queue: int | None = None
    mapper_file_size_batch_consume_queue: int | None = None
    mapped_file_size_consume_queue_ext: int | None = None
    enable_consume_queue_ext: bool = False
    max_hash_slot_num: int | None = None
    max_index_num: int | None = None
    message_index_enable: bool = True
    message_index_safe: bool = False
    index_file_write_enable: bool = True
    index_tags: bool | None = None
    flush_disk_type: str = "ASYNC_FLUSH"
    flush_interval_commit_log: int = 500
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval: int = 10_000
    commit_interval_commit_log: int = 200
    commit_commit_log_least_pages: int = 4
    commit_commit_log_thorough_interval: int = 200
    flush_interval_consume_queue: int = 1000
    sync_flush_timeout: int = 5000
    transient_store_pool_enable: bool = False
    transient_store_pool_size: int = 5
    max_message_size: int = 4 * 1024 * 1024
    auto_message_version_on_topic_len: bool = True
    enabled_append_prop_crc: bool = False
    force_verify_prop_crc: bool = False
    check_crc_on_recover: bool = True
    message_delay_level: str = DEFAULT_DELAY_LEVELS
    os_page_cache_busy_time_out_mills: int = 1000
    duplication_enable: bool = False
    enable_dleger_commit_log: bool = False
    enable_controller_mode: bool = False
    enable_lmq: bool = False
    enable_multi_dispatch: bool = False
    timer_wheel_enable: bool = True
    timer_max_delay_sec: int = 259_200
    broker_role: str = "ASYNC_MASTER"
    delete_when: str = "04"
    file_reserved_time: int = 72
    delete_commit_log_files_interval: int = 100
    destroy_maped_file_interval_forcibly: int = 120_000
    redelete_hanged_file_interval: int = 120_000
    clean_resource_interval: int = 10_000
    delete_file_batch_max: int = 10
    clean_file_forcibly_enable: bool = True
    disk_max_used_space_ratio: int = 75
    disk_space_warning_level_ratio: int = 90
    disk_space_clean_forcibly_ratio: int = 85

    def layout(self, root: Path) -> StoreLayout:
        """Paths of the store at `root`."""
        directories = _paths(self.store_path_commit_log) or (root / "commitlog",)
        # files there are read like all others (MultiPathMappedFileQueue#load); who writes or removes files refuses
        further = (path for path in _paths(self.read_only_commit_log_store_paths) if path not in directories)
        return StoreLayout(root, (*directories, *further))

    @property
    def writes_index_files(self) -> bool:
        """Whether the broker keeps its key index in files: not without an index, or with one in RocksDB alone."""
        return self.message_index_enable and self.index_file_write_enable

    def delay_levels(self) -> tuple[int, ...]:
        """Delay in ms of levels 1, 2, ...; UsageError for an unreadable messageDelayLevel."""
        return _delay_levels(self.message_delay_level)


@functools.cache
def _delay_levels(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part[:-1]) * _UNIT_MS[part[-1]] for part in text.split())
    except (ValueError, KeyError) as error:
        raise UsageError(f"messageDelayLevel {text!r} does not parse", hint="write it as `1s 5s 10s 1m 2h`") from error


def _convert(kind: str, text: str) -> object:
    if kind.startswith("bool"):
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    if kind.startswith("int"):
        # Integer.parseInt knows no `1_000` and no other digits; nothing of ours is negative
        if not (text.isascii() and text.isdigit()):
            raise ValueError(text)
        return int(text)
    return text


_KINDS: dict[str, str] = {name: kind.__forward_arg__ for name, kind in StoreConfig.__annotations__.items()}
# by their letters alone: no rule tells that enabledAppendPropCRC has a word CRC
_NAMES = {name.replace("_", ""): name for name in _KINDS}

_SIZES = (
    "mapped_file_size_commit_log",
    "mapped_file_size_consume_queue",
    "mapper_file_size_batch_consume_queue",
    "mapped_file_size_consume_queue_ext",
    "max_hash_slot_num",
    "max_index_num",
)


def config_from_properties(properties: Mapping[str, str], source: str = "configuration") -> StoreConfig:
    """Settings of `properties` (camelCase keys); keys that are no store settings are ignored."""
    values: dict[str, object] = {}
    for key, text in properties.items():
        name = _NAMES.get(key.lower())
        if name is None:
            continue
        kind = _KINDS[name]
        try:
            values[name] = _convert(kind, text.strip())
        except ValueError as error:
            raise UsageError(f"{key}={text} is not a valid {kind.split()[0]}", file=source) from error
        if name in _SIZES and not values[name]:
            raise UsageError(f"{key}={text} is no size", file=source)
    return StoreConfig(**values)  # type: ignore[arg-type]  # _convert made each value of its field's type


def read_broker_conf(path: Path) -> StoreConfig:
    """Settings of a broker.conf that concern its store; errors as for `read_properties`."""
    return config_from_properties(read_properties(path), str(path))


def read_properties(path: Path) -> dict[str, str]:
    """All that a broker.conf says (Java properties syntax: `key=value`, `#` comments). UnreadableError, UsageError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UnreadableError(
            f"cannot be read: {error.strerror}", file=path, hint="check the path given to -c"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError("is not UTF-8 text", file=path, hint="-c takes a broker.conf") from error
    return parse_properties(text, path)


def parse_properties(text: str, source: Path | None = None) -> dict[str, str]:
    """Keys and values of Java properties. UsageError for a line that is no `key=value`."""
    properties: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        key, separator, value = stripped.partition("=")
        if not separator:
            raise UsageError(f"line {number} is not `key=value`: {stripped[:60]!r}", file=source)
        properties[key.strip()] = value.strip()
    return properties
