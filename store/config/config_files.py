"""The broker's own config files (`config/*.json`) and their backups: reading and writing by the broker's rules."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.checksums import java_long
from rmqctl.formats.config_json import MAXIMUM_SIZE, format_config_json
from rmqctl.formats.errors import (
    CorruptError,
    UncertainError,
    UnreadableError,
    UnsupportedError,
    counted,
    format_time,
    refuse_exhausted,
)
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.config_database import (
    GROUPS,
    LMQ_OFFSETS,
    OFFSETS,
    TOPICS,
    database_of,
    database_text,
    is_readable_form,
    takes_newer_files,
)
from rmqctl.store.config.releases import DEFAULT_RELEASE, RELEASES, VERSIONS, Release
from rmqctl.store.files import io
from rmqctl.store.files.reading import has_entries, is_there, read_small_file, status_of

# Where a broker keeps topics, groups and offsets: the usual JSON file, a RocksDB, or the file of light queues.

MODES = "messageRequestMode.json"
OWN_TABLES = (TOPICS, OFFSETS, GROUPS)
"""The tables that a broker keeps from its first start on."""
DELAYS = "delayOffset.json"
_FILTERS = "consumerFilter.json"
_WHAT = {TOPICS: "topics", GROUPS: "consumer groups", OFFSETS: "consumer offsets", LMQ_OFFSETS: "consumer offsets"}


def surely_gone(root: Path, config: Path, *, is_slave: bool = False) -> list[str]:
    """Return which files a broker saved that are gone, and their backups: of a store at `root`.

    A broker saves offsets every 5 to 10 seconds. So the backup of its filters, which its second save makes and nothing
    else, shows that there were the others; that of delays counts where there are messages to be delivered. Where
    nothing is left of config/, the wheel of its timer shows that there was a broker. A slave delivers nothing, and gets
    the file of delays from its master, a minute after its start at the soonest.
    """
    delays = [DELAYS] if not is_slave and has_entries(root / "consumequeue" / "SCHEDULE_TOPIC_XXXX") else []
    if not has_entries(config):
        return [*OWN_TABLES, *delays] if is_there(root / "timerwheel") else []
    if not is_there(backup_of(config / _FILTERS)):
        return []
    is_light = any(is_there(config / name) for name in (LMQ_OFFSETS, f"{LMQ_OFFSETS}.bak"))
    is_brokers = any(is_there(config / name) for name in (TOPICS, GROUPS))
    return [
        name
        for name in ([OFFSETS] if is_brokers and not is_light else []) + delays
        if database_of(config, name) is None and not is_there(config / name) and not is_there(backup_of(config / name))
    ]


def in_database(path: Path) -> str | None:
    """Return why a broker does not use the config file `path`: a RocksDB has its table; None if none does."""
    database = database_of(path.parent, path.name)
    if database is None:
        return None
    status = status_of(path)
    stale = ""
    if status is not None:
        written = format_time(status.st_mtime_ns // 1_000_000)
        stale = f"; {path.name}, written {written}, is not what the broker uses"
    unread = "" if is_readable_form(database) else ", which is not read yet"
    return f"the broker keeps its {_WHAT[path.name]} in this RocksDB{unread}{stale}"


def refuse_database(path: Path) -> None:
    """Raise UnsupportedError where a change of the config file `path` would have no effect: a RocksDB has its table."""
    why = in_database(path)
    if why is not None:
        hint = "change it by mqadmin while the broker runs; a broker that no longer uses it: move the folder away"
        raise UnsupportedError(why, file=database_of(path.parent, path.name), hint=hint)


class OffsetsHome(NamedTuple):
    """The file that holds the offsets of consumer groups; `note`: which one was taken and why, "" for the usual one."""

    path: Path
    note: str = ""

    @property
    def is_lmq(self) -> bool:
        """Return whether it is the file of a broker with enableLmq."""
        return self.path.name == LMQ_OFFSETS


def offsets_home(config: Path, settings: StoreConfig) -> OffsetsHome:
    """Return the file of the folder `config` that a broker with these `settings` keeps consumer offsets in.

    Where nothing is configured the only file is taken, or the newer one of both. UnreadableError.
    """
    usual, lmq = config / OFFSETS, config / LMQ_OFFSETS
    if settings.enable_lmq:
        return OffsetsHome(lmq, f"offsets are those of {lmq} (enableLmq)")
    written, lmq_written = _written(usual), _written(lmq)
    if lmq_written is None:
        return OffsetsHome(usual)
    if written is None:
        return OffsetsHome(lmq, f"offsets are those of {lmq}: there is no {OFFSETS}")
    newer, older = (lmq, usual) if lmq_written > written else (usual, lmq)
    both = f"there are {OFFSETS} and {LMQ_OFFSETS}: offsets are those of the newer one, {newer}, not of {older.name}"
    return OffsetsHome(newer, f"{both}; -c with the broker.conf (enableLmq) decides")


def _written(path: Path) -> int | None:
    """Return when a file or its backup was written, ns; None if there is neither, or nothing in them."""
    for one in (path, path.with_name(path.name + ".bak")):
        status = status_of(one)
        # what is not a file of light queues was written by no broker with enableLmq
        if status is not None and status.st_size and (path.name != LMQ_OFFSETS or stat.S_ISREG(status.st_mode)):
            return status.st_mtime_ns
    return None


DELETED_TOPICS = "rmqctlDeletedTopics"
"""Topics that were deleted while the log, and perhaps queues, still hold their messages: a key of rmqctl's own in
topics.json. Brokers ignore it, and drop it when they save."""
_TYPE_ATTRIBUTE = "queue.type"


class ConfigFile(NamedTuple):
    """`content` as a broker has it in memory, and the file it came from: the config file or its backup. `forms`: what
    of it is not plain JSON. `read_by`: the versions that load it, with `why_not` of the others and `passed_over`, as in
    LoadedText."""

    content: Any
    source: Path
    forms: tuple[str, ...] = ()
    read_by: frozenset[str] = frozenset(VERSIONS)
    why_not: str = ""
    passed_over: str = ""


_NO_END = 1 << 63


def deleted_in(content: Any) -> dict[str, int]:
    """Return the topics that the content of a topics.json records as deleted, each with the log's end at that time: its
    messages from there on were sent since. A record without ends, of earlier versions, is of all messages."""
    record = content.get(DELETED_TOPICS) if isinstance(content, Mapping) else None
    ends = dict.fromkeys(record, _NO_END) if isinstance(record, list) else record if isinstance(record, dict) else {}
    return {name: end for name, end in ends.items() if isinstance(name, str) and isinstance(end, int)}


def backup_of(path: Path) -> Path:
    """The backup that the broker keeps beside a config file."""
    return path.with_name(path.name + ".bak")


def load_config(path: Path) -> ConfigFile | None:
    """A config file, or its backup where it is missing, empty or damaged, as the broker loads it (ConfigManager#load).

    A file that only some versions load is loaded: it is newer than its backup.
    None if there is neither. CorruptError where what there is cannot be parsed: that is said even where only the file
    itself is damaged and no backup exists, while a broker would start with an empty table. UnreadableError.

    A table that the broker has in a RocksDB comes from there, with its folder as the source; UncertainError for one of
    5.1, which is not read.
    """
    database = database_of(path.parent, path.name)
    if database is not None:
        return _load_database(database, path)
    return _load_file(path)


def load_what_is_left(path: Path) -> tuple[ConfigFile | None, str]:
    """Return what `load_config` does, for a change that rewrites the whole file. Where the file and its backup are
    damaged, it is what can still be read of them, with a note that says so."""
    try:
        return load_config(path), ""
    except CorruptError:
        from rmqctl.store.config.config_tables import TABLES

        pair, table = look_at_pair(path), TABLES.get(path.name)
        if table is None or not pair.is_lost or UNREADABLE in (pair.file.state, pair.backup.state):
            raise
        entries = pair.readable()
        read = f"{counted(len(entries), 'entry', 'entries')} can still be read, and all others are lost"
        return ConfigFile({table.name: entries}, path), f"{why_unknown(path)}: {read}"


def _load_database(database: Path, path: Path) -> ConfigFile:
    """Return the table of the config file `path` from the RocksDB that has it.

    A broker takes over a JSON file that is newer than the database: topics and groups are added, offsets replaced
    (RocksDBTopicConfigManager#merge, RocksDBConsumerOffsetManager#merge).
    """
    if not is_readable_form(database):
        raise UncertainError(in_database(path) or "", file=database, hint="`mqadmin rocksDBConfigToJson` prints it")
    found = parse_config_data(path, database_text(database, path.name))
    assert found is not None
    found = found._replace(source=database)
    newer = _load_file(path) if takes_newer_files(database) else None
    if newer is None or _counter(newer.content) <= _counter(found.content):
        return found
    if path.name in (OFFSETS, LMQ_OFFSETS):
        return newer
    merged = dict(found.content)
    for field, value in newer.content.items():
        is_table = isinstance(value, dict) and field != "dataVersion"
        merged[field] = {**merged.get(field, {}), **value} if is_table else value
    return found._replace(content=merged)


def _counter(content: Any) -> int:
    version = content.get("dataVersion") if isinstance(content, dict) else None
    counter = version.get("counter") if isinstance(version, dict) else None
    return counter if isinstance(counter, int) else 0


def _load_file(path: Path) -> ConfigFile | None:
    damage: CorruptError | None = None
    for candidate in (path, backup_of(path)):
        try:
            loaded = parse_config_file(candidate)
        except CorruptError as error:
            damage = error
            continue
        if loaded is not None:
            return loaded
    if damage is not None:
        raise damage
    return None


def parse_config_file(path: Path) -> ConfigFile | None:
    """One file alone; None if it is missing or empty. CorruptError, UnreadableError."""
    try:
        data = read_config_bytes(path)
    except FileNotFoundError:
        return None
    return parse_config_data(path, data)


def read_config_bytes(path: Path) -> bytes:
    """All of a config file. FileNotFoundError; UnreadableError, also for one that is too large to be read here."""
    return read_small_file(path, MAXIMUM_SIZE, _too_large(path))


def _too_large(path: Path) -> UnreadableError:
    return UnreadableError(_TOO_LARGE, file=path, hint="a broker may well read it: look what it is")


def parse_config_data(path: Path, data: bytes) -> ConfigFile | None:
    """`data` as the content of the config file `path`, or of its backup; None for 0 bytes and white space.

    CorruptError where no version of RocketMQ loads it; UnreadableError for one that is too large to be read here.
    """
    # for files that are there, which many stores have none of
    from rmqctl.store.config.config_tables import is_white_space, load_config_text

    if len(data) > MAXIMUM_SIZE:  # before it is decoded, which takes many times as much memory
        raise _too_large(path)
    if is_white_space(data):
        if b"\0" not in data:
            return None
        raise CorruptError(f"config JSON {_NULS}", file=path)
    try:
        found = load_config_text(path.name.removesuffix(".bak"), data)
    except CorruptError as error:
        raise CorruptError(error.message, file=path, hint=error.hint) from error
    forms = tuple(form.label for form in found.forms)
    return ConfigFile(found.value, path, forms, found.read_by, found.why_not, found.passed_over)


_NULS = "holds NUL bytes alone"
_TOO_LARGE = f"is larger than {MAXIMUM_SIZE >> 20} MiB, which is all that rmqctl reads of a config file"


def read_config(path: Path) -> Any:
    """Content of a config file or its backup; None if there is neither. Errors as for `load_config`."""
    loaded = load_config(path)
    return None if loaded is None else loaded.content


def write_config(path: Path, content: Any) -> None:
    """Replace a config file in the broker's form; what it held goes to its backup first (MixAll#string2File).

    Unlike the broker's, each file is the old or the new one, never half, and a file that holds nothing of use does not
    replace a good backup. WriteFailedError, UnreadableError; UnsupportedError where the broker has the table in a
    RocksDB, and reads nothing of the file.
    """
    refuse_database(path)
    text = format_config_json(content)
    io.make_directories(path.parent, flushed=True)
    old = next_backup(path)
    if old is not None:
        io.write_whole(backup_of(path), old)
    io.write_whole(path, text.encode("utf-8"))


def next_backup(path: Path) -> bytes | None:
    """What the backup of a config file is to hold once the file is replaced: what it holds now; None where that is of
    no use. UnreadableError."""
    try:
        old = parse_config_file(path)
    except CorruptError:
        return None
    return None if old is None else path.read_bytes()


def next_version(version: Mapping[Any, Any], now: int) -> dict[str, Any]:
    """The `dataVersion` of data that has changed at `now`, ms (DataVersion#nextVersion)."""
    counter, state = version.get("counter"), version.get("stateVersion")
    return {
        "counter": java_long((counter if isinstance(counter, int) else 0) + 1),
        "stateVersion": state if isinstance(state, int) else 0,
        "timestamp": now,
    }


def topic_type(entry: object) -> str | None:
    """The queue.type attribute of a topic's entry in topics.json."""
    attributes = entry.get("attributes") if isinstance(entry, dict) else None
    return attributes.get(_TYPE_ATTRIBUTE) if isinstance(attributes, dict) else None


# What a broker says of names of topics (TopicValidator): those it has for itself, and those that no topic may have.

ROCKSDB_TOPICS = ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC")
"""Topics of transactions in RocksDB, which every broker of 5.5 has."""
SYSTEM_TOPICS = frozenset(
    "TBW102 SCHEDULE_TOPIC_XXXX BenchmarkTest RMQ_SYS_TRANS_HALF_TOPIC RMQ_SYS_TRACE_TOPIC "
    "RMQ_SYS_TRANS_OP_HALF_TOPIC TRANS_CHECK_MAX_TIME_TOPIC SELF_TEST_TOPIC OFFSET_MOVED_EVENT CHECKPOINT_TOPIC".split()
).union(ROCKSDB_TOPICS)
NOT_ALLOWED_TO_SEND = frozenset(
    "SCHEDULE_TOPIC_XXXX RMQ_SYS_TRANS_HALF_TOPIC RMQ_SYS_TRANS_OP_HALF_TOPIC TRANS_CHECK_MAX_TIME_TOPIC "
    "SELF_TEST_TOPIC OFFSET_MOVED_EVENT".split()
).union(ROCKSDB_TOPICS)
"""What a broker writes itself: it refuses producers that send to them (TopicValidator#isNotAllowedSendTopic)."""
_SYSTEM_PREFIX = "rmq_sys_"
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")
_LEGAL_TEXT = "^[%|a-zA-Z0-9_-]+$"
# and where a broker does not look at the characters
# retry topics of POP since 5.2 are %RETRY%group+topic (KeyBuilder#buildPopRetryTopicV2)
_USUAL_NAME = re.compile(r"[%|a-zA-Z0-9_.:-]+|%RETRY%[%|a-zA-Z0-9_-]+\+[%|a-zA-Z0-9_-]+")
_LONGEST, _LONGEST_OF_GROUPS = 127, 255
_GROUP_TOPICS = ("%RETRY%", "%DLQ%")
MOST_QUEUES = 10_000
"""Queues for reading, and for writing, that a topic may have here."""


def is_brokers_own(topic: str) -> bool:
    """Return whether a topic of that name is a system topic of every broker and cluster (TopicValidator#isSystemTopic).

    Topics of retries and dead letters are those of a group, and no system topics.
    """
    return topic in SYSTEM_TOPICS or topic.startswith(_SYSTEM_PREFIX)


def has_legal_characters(name: str) -> bool:
    """Whether no character of `name` keeps a broker from taking it (TopicValidator#isTopicOrGroupIllegal)."""
    return _LEGAL.fullmatch(name) is not None


def group_problem(name: str, release: Release = DEFAULT_RELEASE) -> str | None:
    """Return what is wrong with the name of a group, None for a good one (Validators#checkGroup of `release`)."""
    if not name.strip():
        return "the specified group is blank"
    longest = release.longest_group
    if len(name) > longest:
        if release.has_lite_topics:
            return f"the specified group[{name}] is longer than group max length: {longest}."
        return f"the specified group is longer than group max length {longest}."
    if not has_legal_characters(name):
        return f"the specified group[{name}] contains illegal characters, allowing only {_LEGAL_TEXT}"
    return None


def brokers_group_problem(name: str, release: Release) -> str | None:
    """Return why a broker does not create a group of this name (TopicValidator#validateGroup of 5.5.0)."""
    if not name.strip():
        return "The specified group is blank."
    if not has_legal_characters(name):
        return f"The specified group: {name}, contains illegal characters, allowing only {_LEGAL_TEXT}"
    longest = release.longest_group
    return f"The specified group: {name}, is longer than group max length: {longest}" if len(name) > longest else None


def topic_problem(name: str, release: Release = DEFAULT_RELEASE, *, deletes: bool = False) -> str | None:
    """What is wrong with the name of a topic, None if nothing is (TopicValidator#validateTopic of `release`).

    Brokers of 5.x delete a topic of any name (AdminBrokerProcessor#deleteTopic)."""
    if not name.strip():
        return "The specified topic is blank."
    if deletes and not release.is_of_4:
        return None
    is_of_5_5 = release.has_lite_topics
    if not has_legal_characters(name):
        which = f": {name}," if is_of_5_5 else ""
        return f"The specified topic{which} contains illegal characters, allowing only {_LEGAL_TEXT}"
    if is_of_5_5 and name.startswith(_GROUP_TOPICS):
        which, longest = f" is DLQ or Retry topic: {name}, and it's", _LONGEST_OF_GROUPS
    else:
        which, longest = f": {name}, is" if is_of_5_5 else " is", _LONGEST
    limit = f": {longest}" if is_of_5_5 else "."
    return f"The specified topic{which} longer than topic max length{limit}" if len(name) > longest else None


def may_be_name(kind: str, name: str) -> bool:
    """Whether a broker of any version may have a topic or group (`kind`) of this name. It has its own name and its
    cluster's among the topics, retry topics and light queues without a look at them."""
    is_light = kind == "topic" and name.startswith("%LMQ%")
    is_free = is_light or kind == "group" or name.startswith(_GROUP_TOPICS)
    longest = max(release.longest_group for release in RELEASES.values()) if is_free else _LONGEST
    return len(name) <= longest and (is_light or _USUAL_NAME.fullmatch(name) is not None)


# Which of a config file and its backup a broker takes at its start, by version (ConfigManager#load).

GOOD, EMPTY, WHITE_SPACE, MISSING, DAMAGED, UNREADABLE = (
    "good", "empty", "of white space alone", "missing", "damaged", "unreadable"
)  # fmt: skip
NOT_A_FILE = "not a regular file"


class FoundFile(NamedTuple):
    """One file as it is. `loaded`: what versions load of a good one; `detail`: why it is damaged or unreadable."""

    path: Path
    state: str
    loaded: ConfigFile | None = None
    detail: str = ""
    data: bytes = b""

    @property
    def is_good(self) -> bool:
        """Whether at least one version loads it."""
        return self.state == GOOD

    @property
    def value(self) -> Any:
        """What a good one holds."""
        return None if self.loaded is None else self.loaded.content

    @property
    def holds_nothing(self) -> bool:
        """Whether a broker takes it for one that is not there."""
        return self.state in (MISSING, EMPTY)

    def is_loaded_by(self, version: str) -> bool:
        """Whether that version's load of it succeeds; one of white space is an empty table to some."""
        from rmqctl.store.config.config_tables import white_space_read_by

        if self.state == WHITE_SPACE:
            return version in white_space_read_by(self.path.name.removesuffix(".bak"), self.data)
        return self.loaded is not None and version in self.loaded.read_by

    def table(self) -> dict[Any, Any]:
        """The table of a good file, or the readable part of a torn one; empty without one."""
        from rmqctl.store.config.config_tables import convertible_entries
        from rmqctl.store.config.config_text import read_torn_text

        name = self.path.name.removesuffix(".bak")
        return convertible_entries(name, self.value if self.is_good else read_torn_text(self.data))


def look_at(path: Path) -> FoundFile:
    """A config file, or a backup, as it is."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return FoundFile(path, UNREADABLE, detail=NOT_A_FILE)
        if status.st_size > MAXIMUM_SIZE:
            return FoundFile(path, UNREADABLE, detail=_TOO_LARGE)
        data = path.read_bytes()
    except FileNotFoundError:
        return FoundFile(path, MISSING)
    except OSError as error:
        refuse_exhausted(error, path)
        return FoundFile(path, UNREADABLE, detail=str(error.strerror))
    if not data:
        return FoundFile(path, EMPTY)
    from rmqctl.store.config.config_tables import is_white_space

    if is_white_space(data):
        if b"\0" in data:
            return FoundFile(path, DAMAGED, detail=_NULS, data=data)
        return FoundFile(path, WHITE_SPACE, data=data)
    try:
        return FoundFile(path, GOOD, parse_config_data(path, data), data=data)
    except CorruptError as error:
        return FoundFile(path, DAMAGED, detail=error.message, data=data)


class ConfigPair(NamedTuple):
    """A config file and its backup."""

    file: FoundFile
    backup: FoundFile

    def source_for(self, version: str) -> FoundFile | None:
        """What that version loads: the file, its backup, or for none of them whichever is not there; None where the
        load fails and the broker does not start."""
        if self.file.is_loaded_by(version):
            return self.file
        if self.backup.is_loaded_by(version) or self.backup.holds_nothing:
            return self.backup
        return None

    @property
    def is_lost(self) -> bool:
        """Whether there was something and no version loads it."""
        is_there = not (self.file.state == MISSING and self.backup.state == MISSING)
        return is_there and not self.file.is_good and not self.backup.is_good

    def readable(self) -> dict[Any, Any]:
        """Return the entries of a good one, or those that can still be read of a torn one."""
        return max((one.table() for one in self), key=len)


def look_at_pair(path: Path) -> ConfigPair:
    """A config file and its backup as they are."""
    return ConfigPair(look_at(path), look_at(backup_of(path)))


_WORDS = {
    GOOD: "does not hold its table",
    EMPTY: "is empty",
    WHITE_SPACE: "is of white space alone",
    MISSING: "is not there",
    DAMAGED: "is damaged",
    UNREADABLE: "cannot be read",
}


def how_it_is(found: FoundFile) -> str:
    """Return the state of a file as a predicate, for a sentence that says why its table is not known."""
    return _WORDS[found.state]


def why_unknown(path: Path) -> str:
    """Return why the table of the config file `path` is not known: whether it is absent, empty, damaged or unreadable,
    and so its backup where there is one."""
    pair = look_at_pair(path)
    if pair.backup.state == MISSING:
        return f"{path} {how_it_is(pair.file)}"
    return f"{path} {how_it_is(pair.file)}, and its backup {how_it_is(pair.backup)}"


_OF_5 = ("topicQueueMapping.json", "consumerOrderInfo.json", MODES)


def starts_of(pair: ConfigPair) -> str:
    """A sentence on what brokers do at their next start where neither file is good."""
    name = pair.file.path.name
    readers = [version for version in VERSIONS if not RELEASES[version].is_of_4 or name not in _OF_5]
    # a broker passes over the modes that it cannot load
    stopped = [version for version in readers if name != MODES and pair.source_for(version) is None]
    empty = [version for version in readers if version not in stopped]
    said = []
    if stopped:
        said.append(f"{_and(stopped)} do{'es' if len(stopped) == 1 else ''} not start")
    if empty:
        said.append(f"{_and(empty)} start{'s' if len(empty) == 1 else ''} with an empty table")
    return "; ".join(said)


def _and(versions: list[str]) -> str:
    return versions[0] if len(versions) == 1 else f"{', '.join(versions[:-1])} and {versions[-1]}"
