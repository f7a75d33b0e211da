"""Config files and their backups: what parses, what has a stale end, what only its backup still holds."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqctl.formats.config_json import parse_config_json
from rmqctl.formats.errors import CorruptError, UncertainError, counted, refuse_exhausted
from rmqctl.store.answers.config_offsets import light_offsets, offset_key, why_hidden
from rmqctl.store.answers.unread import unread_queues
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.config.accounts import GROUP, TOPIC, account_problems, has_accounts, stored_accounts
from rmqctl.store.config.config_database import (
    GROUPS,
    LMQ_OFFSETS,
    OFFSETS,
    TOPICS,
    database_of,
    databases,
    is_readable_form,
)
from rmqctl.store.config.config_files import (
    DAMAGED,
    EMPTY,
    GOOD,
    MISSING,
    NOT_A_FILE,
    OWN_TABLES,
    UNREADABLE,
    WHITE_SPACE,
    ConfigPair,
    FoundFile,
    deleted_in,
    look_at_pair,
    offsets_home,
    read_config,
    starts_of,
    surely_gone,
)
from rmqctl.store.config.config_names import NAMING_FILES, wrong_names
from rmqctl.store.config.config_tables import KNOWN_FILES, TABLES, misnamed_topics, missing_table
from rmqctl.store.config.tiered_table import TABLE as TIERED_TABLE
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.files.reading import has_entries, is_there
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC
from rmqctl.store.queues.queue_table import AnyConsumeQueue, is_of_deleted
from rmqctl.store.store_files import StoreFiles

_SUFFIX = ".json"
# a string as a whole, so that brackets inside it do not count; nothing is tried twice
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\]]', re.DOTALL)
KNOWN_FROM_ELSEWHERE = ("topics.json", "subscriptionGroup.json", "delayOffset.json")
"""Files whose names can be found again: topics by their queues, groups by their offsets."""
_FILTERS = "consumerFilter.json"


def whole_value_size(data: bytes) -> int | None:
    """Bytes of the first JSON object of `data` if more than white space follows it and it parses; else None."""
    text = data.decode("utf-8", "surrogateescape")
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token in "{[":
            depth += 1
        elif token in "}]":
            depth -= 1
            if depth == 0:
                return _checked_size(text, match.end())
        elif depth == 0:
            return None
    return None


def _checked_size(text: str, end: int) -> int | None:
    if not text[end:].strip():
        return None
    try:
        parse_config_json(text[:end])
        return len(text[:end].encode("utf-8"))
    except (CorruptError, UnicodeEncodeError):
        return None


class ConfigFiles:
    """All config files of a store with their backups, read once."""

    def __init__(self, directory: Path, *, is_slave: bool = False) -> None:
        self._directory, self._is_slave = directory, is_slave
        self.files: dict[str, ConfigPair] = {name: look_at_pair(directory / name) for name in _names(directory)}
        self._of_databases: dict[str, Any] = {}
        self._of_damaged: list[Finding] = []
        for database, names in databases(directory).items():
            self._read_database(database, names)

    def _read_database(self, database: Path, names: list[str]) -> None:
        for name in names:
            try:
                self._of_databases[name] = read_config(self._directory / name)
            except UncertainError:
                return
            except CorruptError as error:
                path = None if error.file is None else Path(error.file)
                text = f"the table of {name} cannot be read from its RocksDB: {error.message}"
                self._of_damaged.append(Finding("RMQ-CFG-008", text, path or database, error.physical_offset))

    def value(self, name: str) -> Any:
        """What a broker would load: the file or its backup, or of a RocksDB in its place; None if neither is good."""
        if name in self._of_databases:
            return self._of_databases[name]
        pair = self.files.get(name)
        return None if pair is None else next((found.value for found in pair if found.is_good), None)

    def table(self, name: str) -> dict[Any, Any]:
        """The table in it; empty without one."""
        value = self.value(name)
        found = value.get(TABLES[name].name) if isinstance(value, dict) else None
        return found if isinstance(found, dict) else {}

    def findings(self) -> Iterator[Finding]:
        """What is wrong with the files as such, and with the names in them."""
        for name, pair in self.files.items():
            is_unused = name == LMQ_OFFSETS and pair.file.detail == NOT_A_FILE and bool(self.value(OFFSETS))
            is_unread = name == TIERED_TABLE and pair.file.state == UNREADABLE
            if (name in KNOWN_FILES and not is_unused) or is_unread:
                yield from _of_pair(pair)
            if pair.file.is_good:
                yield from _of_shape(name, pair.file)
        yield from self._of_damaged
        yield from self._missing()
        yield from self._names()

    def _missing(self) -> Iterator[Finding]:
        """Yield the file that is gone where the others of a broker are there.

        A folder with one of them alone was not left by a broker: a library that wrote the store needs no other.
        """
        gone = surely_gone(self._directory.parent, self._directory, is_slave=self._is_slave)
        present = [name for name in OWN_TABLES if name in self.files and not self._is_record_alone(name)]
        for name in OWN_TABLES:
            if len(present) > 1 and name not in present and not self._is_elsewhere(name):
                beside = ", ".join(present)
                text = f"neither it nor its backup is there, beside {beside}"
                if self._is_record_alone(name):
                    text = f"the file names no topic, only those that `purge` removed, beside {beside}"
                if name == TOPICS and has_entries(self._directory.parent / "consumequeue"):
                    yield self._gone(name, text)
                elif name not in gone:
                    yield Finding("RMQ-CFG-022", text, self._directory / name)
        for name in gone:
            yield self._gone(name, "neither it nor its backup is there, though a broker saved it")

    def _gone(self, name: str, text: str) -> Finding:
        is_known = name in KNOWN_FROM_ELSEWHERE and (name != GROUPS or bool(self.table(OFFSETS)))
        return Finding("RMQ-CFG-050", text, self._directory / name, data_lost=True, fix=None if is_known else "")

    def _is_record_alone(self, name: str) -> bool:
        """Return whether the file is a topics.json that names deleted topics and no other."""
        return name == TOPICS and bool(deleted_in(self.value(name))) and not self.table(name)

    def _is_elsewhere(self, name: str) -> bool:
        """Whether the table is in a RocksDB, or in the file of a broker with enableLmq."""
        is_lmq = name == OFFSETS and LMQ_OFFSETS in self.files
        return is_lmq or database_of(self._directory, name) is not None

    def _names(self) -> Iterator[Finding]:
        for file in NAMING_FILES:
            place = database_of(self._directory, file) or self._directory / file
            for kind, name, is_leaving in wrong_names(file, self.value(file)):
                text = "could lead out of the store's folders" if is_leaving else "is one that no broker takes"
                code = "RMQ-CFG-023" if is_leaving else "RMQ-CFG-024"
                topic = name if kind == "topic" else None
                yield Finding(code, f"{kind} name {name!r} {text}", place, topic=topic, found=name)
        database = database_of(self._directory, TOPICS)
        fix = None if database is None else ""
        for key, named in misnamed_topics(self.table(TOPICS)):
            code, text = "RMQ-CFG-025", f"the entry of {key!r} has the topicName {named!r}"
            if named is None:
                code, text = "RMQ-CFG-026", f"the entry of {key!r} has no topicName"
            yield Finding(code, text, database or self._directory / TOPICS, topic=key, found=named, fix=fix)


def _names(directory: Path) -> list[str]:
    try:
        entries = os.listdir(directory)
    except OSError as error:
        refuse_exhausted(error, directory)
        return []
    names = {name.removesuffix(".bak") for name in entries if name.removesuffix(".bak").endswith(_SUFFIX)}
    # what a RocksDB holds no broker reads from a file
    return sorted(name for name in names if database_of(directory, name) is None)


def _of_pair(pair: ConfigPair) -> Iterator[Finding]:
    file, backup = pair
    path = file.path
    for one in pair:
        if one.state == UNREADABLE:
            code = "RMQ-FILE-007" if one.detail == NOT_A_FILE else "RMQ-FILE-006"
            # consumers send their filters again when they subscribe; the other files hold what nothing else does
            is_kept_elsewhere = path.name == _FILTERS or (one is backup and file.is_good)
            yield Finding(code, one.detail, one.path, data_lost=False if is_kept_elsewhere else None)
    whole = whole_value_size(file.data) if file.state == DAMAGED else None
    if whole is not None:
        text = "bytes of an older, longer version follow the value"
        yield Finding("RMQ-CFG-003", text, path, whole, expected=whole, found=len(file.data))
    elif file.state == GOOD:
        yield from _of_good(file, backup)
    elif file.state == MISSING and backup.state == MISSING:
        return
    elif backup.is_good:
        if file.state == DAMAGED:
            yield Finding("RMQ-CFG-001", file.detail, path, data_lost=False)
        elif file.state != UNREADABLE and (backup.value or file.state != MISSING):
            yield Finding("RMQ-CFG-004", f"the file is {file.state}, its backup is there", path)
    elif UNREADABLE not in (file.state, backup.state):
        said = [f"the {what} is {_state(one)}" for what, one in (("file", file), ("backup", backup))]
        most = len(pair.readable())
        readable = f"; {counted(most, 'entry', 'entries')} can still be read" if most else ""
        text = f"{', '.join(said)}: {starts_of(pair)}{readable}"
        fix = None if most or path.name in KNOWN_FROM_ELSEWHERE else ""
        yield Finding("RMQ-CFG-002", text, path, data_lost=True, fix=fix)


def _of_good(file: FoundFile, backup: FoundFile) -> Iterator[Finding]:
    loaded = file.loaded
    assert loaded is not None
    if not isinstance(loaded.content, dict):
        return  # its shape is a finding of its own
    if loaded.why_not or loaded.passed_over:
        said = [f"not loaded by {loaded.why_not}"] if loaded.why_not else []
        said += [f"passed over by {loaded.passed_over}"] if loaded.passed_over else []
        said += [form for form in loaded.forms if form not in loaded.why_not + loaded.passed_over]
        yield Finding("RMQ-CFG-021", "; ".join(said), file.path)
    elif loaded.forms:
        yield Finding("RMQ-CFG-020", ", ".join(loaded.forms), file.path)
    if backup.state in (DAMAGED, EMPTY, WHITE_SPACE):
        yield Finding("RMQ-CFG-005", backup.detail or f"it is {backup.state}", backup.path)


def _state(found: FoundFile) -> str:
    return f"damaged ({found.detail})" if found.state == DAMAGED else found.state


def _of_shape(name: str, found: FoundFile) -> Iterator[Finding]:
    value = found.value
    if not isinstance(value, dict):
        kind = type(value).__name__
        yield Finding("RMQ-CFG-007", "is no JSON object", found.path, expected="object", found=kind, data_lost=None)
        return
    table = missing_table(name, value)
    if table is not None:
        yield Finding("RMQ-CFG-007", f"holds no {table}", found.path, expected=table, found="nothing", data_lost=None)


# Consumer and delay offsets against the queues that they point into, and topics against their configuration.

_SEPARATOR = "@"
_LMQ = "%LMQ%"
# dead letters are for the operator: 4.x makes these topics without the permission to read
_BROKERS_OWN = ("%DLQ%", SCHEDULE_TOPIC, "rmq_sys_", "RMQ_SYS_")
_DELAY, _TOPICS = "delayOffset.json", "topics.json"
# offsets whose distance from the right one says how many messages are concerned
_COUNTED = ("RMQ-OFF-001", "RMQ-OFF-002")


class QueueDoubts:
    """Queues with findings of their own: their ends are not known, so no offset can be past them.

    `note` every finding before offsets are judged.
    """

    def __init__(self, files: StoreFiles, *, is_quick: bool) -> None:
        self._roots = (files.layout.consumequeue, files.layout.batchconsumequeue)
        self._is_quick = is_quick
        self._are_all = False
        self._queues: set[tuple[str, int | None]] = set()

    def note(self, finding: Finding) -> None:
        """Take in what was found."""
        family = finding.kind.family
        # queue offsets that were given twice do not make the end doubtful
        if not finding.severity.is_alarm or family not in ("CQ", "FILE") or finding.code == "RMQ-CQ-017":
            return
        # the last messages of the log are in no queue: those of any queue
        self._are_all |= finding.code in ("RMQ-CQ-002", "RMQ-CQ-004")
        if finding.topic is not None and family == "CQ":
            self._queues.add((finding.topic, finding.queue_id))
        for root in self._roots:
            if finding.file is not None and finding.file.is_relative_to(root):
                topic, *rest = finding.file.relative_to(root).parts or ("",)
                self._queues.add((topic, int(rest[0]) if rest and rest[0].isdigit() else None))

    def has(self, topic: str, queue_id: int, queue: AnyConsumeQueue | None) -> bool:
        """Return whether the end of a queue is in doubt. A quick look knows nothing of what the log has for a queue
        without units."""
        if self._are_all or (self._is_quick and (queue is None or not queue.max_offset)):
            return True
        return (topic, queue_id) in self

    def __contains__(self, key: tuple[str, int]) -> bool:
        """Return whether anything was found about a queue or its topic."""
        return key in self._queues or (key[0], None) in self._queues


@dataclass(frozen=True, slots=True)
class _Wrong:
    """One offset that is not as it should be. `begun_again_at`: where a queue begins whose topic was created again."""

    code: str
    queue_id: int
    offset: int
    bound: int
    begun_again_at: int | None = None


def _beside_databases(config: Path) -> Iterator[Finding]:
    """Yield the RocksDBs whose form is not known, and the files beside others that brokers do not read."""
    for database, names in databases(config).items():
        if not is_readable_form(database):
            text = f"a RocksDB holds what {', '.join(names)} held, and was not checked"
            yield Finding("RMQ-CFG-040", text, database)
            continue
        beside = [name for name in names if is_there(config / name)]
        if beside:
            text = f"the broker uses this RocksDB in place of {', '.join(beside)} beside it"
            yield Finding("RMQ-CFG-040", text, database)


class OffsetCheck:
    """`configs` are to be read before the queues: a group may go on while it is looked at."""

    def __init__(
        self,
        files: StoreFiles,
        configs: ConfigFiles,
        doubts: QueueDoubts | None = None,
        begun_again: Container[tuple[str, int]] = (),
    ) -> None:
        """`begun_again`: queues of topics that were deleted and created again."""
        self._files = files
        self._begun_again = begun_again
        self._configs = configs
        # what has left the commitlog has not expired: a log that is not read has it
        self._unread = {(one.copy.topic, one.copy.queue_id) for one in unread_queues(files)}
        self._home = offsets_home(files.layout.config, files.config)
        self._doubts = doubts or QueueDoubts(files, is_quick=False)
        database = database_of(files.layout.config, self._home.path.name)
        self._place = database or self._home.path
        self._fix = None if database is None else ""

    def findings(self) -> Iterator[Finding]:
        """Offsets of groups, of delay levels, and topics that are not configured."""
        config = self._files.layout.config
        yield from _beside_databases(config)
        if self._home.note and not self._files.config.enable_lmq:
            yield Finding("RMQ-CFG-041", self._home.note, self._home.path)
        try:
            queues = {(queue.topic, queue.queue_id): queue for queue in self._files.queues.all()}
        except CorruptError:
            return
        yield from self._consumers(queues)
        yield from self._delays(queues)
        yield from self._went_back()
        yield from self._unknown_topics(queues)
        yield from self._hidden(queues)

    def _consumer_table(self) -> dict[Any, Any]:
        """Return the offsets of groups; those of light queues are kept in a table of their own."""
        value = self._configs.value(self._home.path.name)
        table = self._configs.table(self._home.path.name)
        return {**table, **light_offsets(value)} if self._home.is_lmq else table

    def _consumers(self, queues: dict[tuple[str, int], AnyConsumeQueue]) -> Iterator[Finding]:
        for key, table in self._consumer_table().items():
            topic, _, group = str(key).partition(_SEPARATOR)
            if offset_key(key) is None:
                text = f"{key!r} names no topic and group: no broker uses its offsets"
                yield Finding("RMQ-OFF-007", text, self._place, topic=topic, fix="")
                continue
            if not isinstance(table, dict):
                yield self._impossible(
                    self._home.path.name, f"{key}: {type(table).__name__} instead of offsets", topic, None
                )
                continue
            wrong: dict[tuple[str, int | None], list[_Wrong]] = {}
            for queue_id, offset in table.items():
                if not isinstance(queue_id, int) or not _is_offset(offset):
                    number = queue_id if isinstance(queue_id, int) else None
                    yield self._impossible(
                        self._home.path.name, f"{key} queue {queue_id}: {offset!r}", topic, number, offset
                    )
                    continue
                found = self._judged(queues.get((topic, queue_id)), topic, queue_id, offset)
                if found is not None:
                    alone = queue_id if found.begun_again_at is not None else None
                    wrong.setdefault((found.code, alone), []).append(found)
            for (code, _), several in wrong.items():
                yield self._grouped(code, topic, group, several)

    def _judged(self, queue: AnyConsumeQueue | None, topic: str, queue_id: int, offset: int) -> _Wrong | None:
        is_doubtful = self._doubts.has(topic, queue_id, queue)
        if queue is None:
            code = "RMQ-OFF-030" if is_doubtful and (topic, queue_id) in self._doubts else "RMQ-OFF-005"
            return _Wrong(code, queue_id, offset, 0) if offset else None
        if offset > queue.max_offset:
            if is_doubtful:
                return _Wrong("RMQ-OFF-030", queue_id, offset, queue.max_offset)
            begin = queue.min_offset(self._files.log.min_offset) if (topic, queue_id) in self._begun_again else None
            return _Wrong("RMQ-OFF-001", queue_id, offset, queue.max_offset, begin)
        minimum = queue.min_offset(self._files.log.min_offset)
        if offset >= minimum or (queue.topic, queue_id) in self._unread:
            return None
        return _Wrong("RMQ-OFF-002", queue_id, offset, minimum)

    def _grouped(self, code: str, topic: str, group: str, several: list[_Wrong]) -> Finding:
        first = several[0]
        more = f" (and {counted(len(several) - 1, 'more queue')})" if len(several) > 1 else ""
        places = {
            "RMQ-OFF-001": f"past its end {first.bound}",
            "RMQ-OFF-002": f"before its first message {first.bound}",
            "RMQ-OFF-005": "which is not there",
            "RMQ-OFF-030": f"which is not whole: its files end at {first.bound}",
        }
        text = f"group {group} has offset {first.offset} in queue {first.queue_id} of {topic}, {places[code]}{more}"
        begin = first.begun_again_at
        if begin is not None:
            text += (
                f": the topic was created again, and the group has not consumed messages {begin} to {first.bound - 1}"
            )
        return Finding(
            code,
            text,
            self._place,
            topic=topic,
            queue_id=first.queue_id if len(several) == 1 else None,
            expected=first.bound if begin is None else begin,
            found=first.offset,
            messages=sum(abs(one.offset - one.bound) for one in several) if code in _COUNTED else None,
            fix=self._fix,
        )

    def _delays(self, queues: dict[tuple[str, int], AnyConsumeQueue]) -> Iterator[Finding]:
        path = self._files.layout.config / _DELAY
        table = self._configs.table(_DELAY)
        for level, offset in table.items():
            if not isinstance(level, int) or not _is_offset(offset):
                yield self._impossible(_DELAY, f"level {level}: {offset!r}", SCHEDULE_TOPIC, None, offset)
                continue
            queue = queues.get((SCHEDULE_TOPIC, level - 1))
            end = queue.max_offset if queue is not None else 0
            minimum = queue.min_offset(self._files.log.min_offset) if queue is not None else 0
            if offset > end and self._doubts.has(SCHEDULE_TOPIC, level - 1, queue):
                text = f"level {level} is at {offset}, and its queue is not whole: its files end at {end}"
                yield Finding("RMQ-OFF-030", text, path, None, SCHEDULE_TOPIC, level - 1, found=offset)
                continue
            if offset > end:
                code, bound, where = "RMQ-OFF-003", end, f"past its end {end}"
            elif offset < minimum:
                code, bound, where = "RMQ-OFF-004", minimum, f"before its first message {minimum}"
            else:
                continue
            text, messages = f"level {level} is at {offset}, {where}", abs(offset - bound)
            yield Finding(code, text, path, None, SCHEDULE_TOPIC, level - 1, bound, offset, messages=messages)
        yield from self._stuck(queues, table)
        if self._configs.value(_DELAY) is None:
            return
        unnamed = {
            queue_id + 1: queue.max_offset - queue.min_offset(self._files.log.min_offset)
            for (topic, queue_id), queue in queues.items()
            if topic == SCHEDULE_TOPIC and queue_id + 1 not in table
        }
        levels = [str(level) for level, messages in sorted(unnamed.items()) if messages]
        if levels:
            text = f"no offset for {'level' if len(levels) == 1 else 'levels'} {', '.join(levels)}, where messages are"
            yield Finding("RMQ-OFF-008", text, path, topic=SCHEDULE_TOPIC, messages=sum(unnamed.values()))

    def _stuck(self, queues: dict[tuple[str, int], AnyConsumeQueue], table: dict[Any, Any]) -> Iterator[Finding]:
        """Yield levels with pending messages that messageDelayLevel does not have, where it is a table of its own."""
        config = self._files.config
        levels = len(config.delay_levels())
        if config.message_delay_level == type(config)().message_delay_level:
            return
        for (topic, queue_id), queue in sorted(queues.items()):
            if topic != SCHEDULE_TOPIC or queue_id < levels:
                continue
            offset = table.get(queue_id + 1, 0)
            begin = max(offset if _is_offset(offset) else 0, queue.min_offset(self._files.log.min_offset))
            pending = queue.max_offset - begin
            if pending > 0:
                text = (
                    f"{counted(pending, 'message')} of level {queue_id + 1} are never delivered: messageDelayLevel has "
                )
                text += counted(levels, "level")
                path = self._files.layout.config / _DELAY
                yield Finding("RMQ-OFF-031", text, path, None, topic, queue_id, levels, queue_id + 1, messages=pending)

    def _went_back(self) -> Iterator[Finding]:
        """Offsets that are lower than in the backup, which was written before."""
        pair = self._configs.files.get(self._home.path.name)
        if pair is None or not (pair[0].is_good and pair[1].is_good):
            return
        before = pair[1].value.get("offsetTable") if isinstance(pair[1].value, dict) else None
        for key, table in self._consumer_table().items():
            older = before.get(key) if isinstance(before, dict) else None
            if not (isinstance(table, dict) and isinstance(older, dict)):
                continue
            back = [
                (queue_id, older[queue_id], offset)
                for queue_id, offset in table.items()
                if _is_offset(offset) and _is_offset(older.get(queue_id)) and offset < older[queue_id]
            ]
            if back:
                topic, _, group = str(key).partition(_SEPARATOR)
                queue_id, expected, found = back[0]
                more = f" (and {counted(len(back) - 1, 'more queue')})" if len(back) > 1 else ""
                yield Finding(
                    "RMQ-OFF-006",
                    f"group {group} is at {found} in queue {queue_id} of {topic}, its backup says {expected}{more}",
                    pair[0].path,
                    topic=topic,
                    queue_id=queue_id if isinstance(queue_id, int) else None,
                    expected=expected,
                    found=found,
                    messages=sum(old - new for _, old, new in back),
                )

    def _unknown_topics(self, queues: dict[tuple[str, int], AnyConsumeQueue]) -> Iterator[Finding]:
        configured = self._configs.table(_TOPICS)
        # a slave gets topics.json from its master, later than messages
        if not configured or self._files.config.is_slave:
            return
        # what was deleted while its messages stay (network/broker/tables.py)
        deleted = deleted_in(self._configs.value(_TOPICS))
        for topic in sorted({topic for (topic, _), queue in queues.items() if not is_of_deleted(deleted, queue)}):
            if topic not in configured and not topic.startswith(_LMQ) and is_safe_topic(topic):
                text = "the topic has queues but is not in topics.json"
                yield Finding("RMQ-CFG-006", text, self._files.layout.consumequeue / topic, topic=topic)

    def _hidden(self, queues: dict[tuple[str, int], AnyConsumeQueue]) -> Iterator[Finding]:
        """Yield queues with messages that the configuration hides from consumers, except the broker's own."""
        entries = self._configs.table(_TOPICS)
        hidden: dict[str, list[tuple[int, str, int]]] = {}
        for (topic, queue_id), queue in sorted(queues.items()):
            why = None if topic.startswith(_BROKERS_OWN) else why_hidden(entries.get(topic), queue_id)
            messages = 0 if why is None else queue.max_offset - queue.min_offset(self._files.log.min_offset)
            if why is not None and messages > 0:
                hidden.setdefault(topic, []).append((queue_id, why, messages))
        for topic, rows in hidden.items():
            queue_id, why, _ = rows[0]
            more = f" (and {counted(len(rows) - 1, 'more queue')})" if len(rows) > 1 else ""
            path, alone = self._files.layout.config / _TOPICS, queue_id if len(rows) == 1 else None
            unread = sum(messages for _, _, messages in rows)
            yield Finding("RMQ-CFG-042", f"{why}{more}", path, None, topic, alone, messages=unread)

    def _impossible(self, name: str, text: str, topic: str, queue_id: int | None, offset: Any = None) -> Finding:
        path, fix = (self._files.layout.config / name, None) if name == _DELAY else (self._place, self._fix)
        found = offset if isinstance(offset, int | str) else None
        return Finding("RMQ-OFF-007", text, path, topic=topic, queue_id=queue_id, found=found, fix=fix)


def _is_offset(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


# Users of a broker and their ACLs that cannot be used, or that say something of what is not there.

_ACCOUNT_CODES = {
    "unusable": "RMQ-ACL-001",
    "no user": "RMQ-ACL-002",
    "no super user": "RMQ-ACL-003",
    "may nothing": "RMQ-ACL-004",
    "unknown name": "RMQ-ACL-005",
}


def account_findings(config: Path, configs: ConfigFiles) -> Iterator[Finding]:
    """Yield what is unusable of the users in config/; `configs`: whose topics and groups entries name.

    UnreadableError. A damaged database is a finding of its blocks.
    """
    if not has_accounts(config):
        return
    try:
        accounts = stored_accounts(config)
    except CorruptError:
        return
    known = {TOPIC: configs.table(TOPICS), GROUP: configs.table(GROUPS)}
    for problem in account_problems(accounts, lambda kind, name: not known[kind] or name in known[kind]):
        yield Finding(_ACCOUNT_CODES[problem.kind], problem.text, problem.place)
