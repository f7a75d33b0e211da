"""Create, change and delete entries of topics.json and subscriptionGroup.json in a store at rest.

`entry_after` is the rule for one entry, for those of brokers that run as well. An entry is all that changes: queue
files, messages and offsets stay. The version of the data goes up, and the file before becomes the backup, as when a
broker writes it (ConfigManager#persist).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.config_json import format_config_json
from rmqctl.formats.errors import CorruptError, NotFoundError, RefusedError, UsageError, counted
from rmqctl.formats.notebook import as_html
from rmqctl.formats.properties import REAL_TOPIC
from rmqctl.store.answers.config_offsets import KnownNames, is_own_group
from rmqctl.store.config.config_database import GROUPS, TOPICS
from rmqctl.store.config.config_files import (
    DELETED_TOPICS,
    MOST_QUEUES,
    deleted_in,
    group_problem,
    is_brokers_own,
    load_config,
    next_version,
    refuse_database,
    topic_problem,
)
from rmqctl.store.config.config_tables import (
    Attribute,
    changed_attributes,
    group_attributes,
    parsed_change,
    topic_attributes,
)
from rmqctl.store.config.releases import DEFAULT_RELEASE, RELEASES, VERSIONS
from rmqctl.store.files.layout import StoreLayout, topic_directory
from rmqctl.store.files.reading import is_there
from rmqctl.store.info.counts import count_topics
from rmqctl.store.journal.journal import PlannedChange, changing
from rmqctl.store.journal.plan import MoveAway, Plan
from rmqctl.store.log.walk import message_if_any
from rmqctl.store.offsets.change import OffsetFile, content_with, offset_file_of, plan_file
from rmqctl.store.options import ChangeOptions, Events
from rmqctl.store.pop.records import RETRY_PREFIX
from rmqctl.store.queues.dispatch import LMQ_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from rmqctl.store.store_files import StoreFiles

_VERSION, _ATTRIBUTES = "dataVersion", "attributes"
# no older version has an attribute that it does not have
_NEWEST = RELEASES[VERSIONS[-1]]
_PERMS = (2, 4, 6)
_QUEUE_NUMS = ("readQueueNums", "writeQueueNums")


class _Kind(NamedTuple):
    """`created`: an entry as RocketMQ makes it where no setting is given; its types are those of the settings.
    `attributes`: those that it may have."""

    word: str
    file: str
    table: str
    key: str
    created: Mapping[str, Any]
    attributes: Mapping[str, Attribute]


# TopicConfig, with the queue numbers of `mqadmin updateTopic`; SubscriptionGroupConfig
_TOPIC = _Kind(
    "topic",
    TOPICS,
    "topicConfigTable",
    "topicName",
    {
        "order": False,
        "perm": 6,
        "readQueueNums": 8,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "writeQueueNums": 8,
    },
    topic_attributes(_NEWEST),
)
_GROUP = _Kind(
    "group",
    GROUPS,
    "subscriptionGroupTable",
    "groupName",
    {
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    },
    group_attributes(_NEWEST),
)
_KINDS = {"topic": _TOPIC, "group": _GROUP}
_ACTIONS = ("create", "change", "delete")


class EntryChange(NamedTuple):
    """What is to be done (`action`: create, change or delete) with the entry of a topic or group (`kind`).

    `settings` by the names of the file. `attributes`: changes as mqadmin takes them, `+name=value,-name`. `release`:
    the version of RocketMQ whose rules for names apply.
    """

    kind: str
    action: str
    name: str
    settings: Mapping[str, Any] = {}
    attributes: str = ""
    release: str = DEFAULT_RELEASE.name


@dataclass(slots=True)
class EntryReport:
    """An entry `before` and `after` the change; None if missing."""

    _repr_html_ = as_html

    name: str
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)
    journal: str | None = None
    dry_run: bool = False
    operations: list[dict[str, Any]] = field(default_factory=list)


def change_entry(files: StoreFiles, wanted: EntryChange, change: ChangeOptions) -> EntryReport:
    """Create, change or delete an entry, and keep the files before in a journal.

    UsageError, RefusedError and NotFoundError as `entry_after`. StoreInUseError; CorruptError; UnsupportedError for
    tables in a RocksDB.
    """
    require_possible(wanted)
    report = EntryReport(wanted.name, dry_run=change.dry_run)
    with changing(files, f"{wanted.kind}s", change, mends=False) as planned:
        _plan(planned, wanted, report)
        report.operations = planned.rows()
    report.journal = planned.kept_in
    return report


def require_possible(wanted: EntryChange) -> None:
    """UsageError for settings that there are not; RefusedError for names and attributes that RocketMQ refuses."""
    if wanted.kind not in _KINDS or wanted.action not in _ACTIONS:
        raise UsageError(f"{wanted.kind} {wanted.action} is not known: {', '.join(_KINDS)}; {', '.join(_ACTIONS)}")
    kind = _KINDS[wanted.kind]
    _require_settings(kind, wanted.settings)
    _require_name(kind, wanted)
    if kind is _GROUP and wanted.action == "delete" and is_own_group(wanted.name):
        # SubscriptionGroupManager#init
        raise RefusedError(
            f"the group {wanted.name} is a broker's own: it makes it again with its usual settings",
            hint=f"`rmqctl groups change -g {wanted.name} …` changes its settings",
        )
    parsed_change(wanted.attributes)


def entry_after(wanted: EntryChange, before: Mapping[str, Any] | None, place: str) -> dict[str, Any] | None:
    """Return the entry that follows `before`, both None for no entry. `place` has the entries: a file, a broker.

    RefusedError for `create` where there is an entry, and for attributes in RocketMQ's words; NotFoundError for
    `change` and `delete` without one.
    """
    kind = _KINDS[wanted.kind]
    if wanted.action == "create" and before is not None:
        raise RefusedError(f"{place} has {wanted.name} already", hint=f"`rmqctl {wanted.kind}s change` changes it")
    if wanted.action != "create" and before is None:
        raise NotFoundError(f"{place} has no {wanted.name}", hint=f"`rmqctl {wanted.kind}s create` creates it")
    if wanted.action == "delete":
        return None
    after = {**({**kind.created, kind.key: wanted.name} if before is None else before), **wanted.settings}
    if wanted.attributes:
        known = None if before is None else before.get(_ATTRIBUTES)
        has = None if before is None else known if isinstance(known, dict) else {}
        after[_ATTRIBUTES] = changed_attributes(has, parsed_change(wanted.attributes), kind.attributes)
    return after


def _require_name(kind: _Kind, wanted: EntryChange) -> None:
    """Refuse a name with the words of TopicValidator or Validators. Brokers look at no name of a group they delete."""
    if wanted.release not in RELEASES:
        raise UsageError(f"{wanted.release!r} is not a version that is known: {', '.join(RELEASES)}")
    name, release, deletes = wanted.name, RELEASES[wanted.release], wanted.action == "delete"
    if kind is _TOPIC:
        problem = topic_problem(name, release, deletes=deletes)
        if problem is None and is_brokers_own(name):
            problem = f"The topic[{name}] is conflict with system topic."
    else:
        problem = None if deletes else group_problem(name, release)
    if problem is not None:
        raise RefusedError(problem, hint="take another name")


def _require_settings(kind: _Kind, wanted: Mapping[str, Any]) -> None:
    for key, value in wanted.items():
        usual = kind.created.get(key)
        if usual is None or type(value) is not type(usual):
            known = ", ".join(f"{one} ({type(value).__name__})" for one, value in kind.created.items())
            raise UsageError(f"{key}={value!r} is not a setting of a {kind.word}: {known}")
        if key == "perm" and value not in _PERMS:
            raise UsageError(f"perm {value}: 2 is write, 4 is read, 6 is both")
        if key in _QUEUE_NUMS and not 0 <= value <= MOST_QUEUES:
            raise UsageError(f"{key} {value}: a topic has 0 to {MOST_QUEUES} queues")
        if key in ("retryQueueNums", "retryMaxTimes", "brokerId", "whichBrokerWhenConsumeSlowly") and not (
            (-1 if key == "retryMaxTimes" else 0) <= value < 1 << 31
        ):
            raise UsageError(f"{key} {value} is out of range")


def _plan(change: PlannedChange, wanted: EntryChange, report: EntryReport) -> None:
    kind = _KINDS[wanted.kind]
    path = change.files.layout.config / kind.file
    refuse_database(path)
    loaded = load_config(path)
    content = loaded.content if loaded is not None else {kind.table: {}, _VERSION: {}}
    table = content.get(kind.table) if isinstance(content, dict) else None
    if not isinstance(table, dict):
        raise CorruptError(f"holds no table {kind.table}", file=path, hint="`rmqctl check` shows the damage")
    entry = table.get(report.name)
    if entry is not None and not isinstance(entry, dict):
        raise CorruptError(
            f"the entry of {report.name!r} is not an object", file=path, hint="`rmqctl check` shows the damage"
        )
    report.before = None if entry is None else dict(entry)
    report.after = entry_after(wanted, report.before, f"config/{kind.file}")
    if report.after is not None and report.after == report.before:
        report.notes.append("nothing changes: the entry has these settings already")
        return
    queues = _note(change.files, kind, report)
    after = {name: one for name, one in table.items() if name != report.name}
    if report.after is not None:
        after[report.name] = report.after
    now = time.time_ns() // 1_000_000
    version = content.get(_VERSION)
    new = {**content, kind.table: after, _VERSION: next_version(version if isinstance(version, dict) else {}, now)}
    if kind is _TOPIC:
        _keep_deleted(new, report, queues, change.files.log.written_end())
    plan_file(change, path, format_config_json(new).encode("utf-8"))


def _keep_deleted(content: dict[Any, Any], report: EntryReport, queues: int, log_end: int) -> None:
    """Keep the names of deleted topics whose queues stay: `serve` makes topics of queues that are not among them. And
    those that are created again without a queue: their earlier messages need none."""
    deleted = deleted_in(content)
    if queues or report.after is None:
        deleted.pop(report.name, None)
    content.pop(DELETED_TOPICS, None)
    if report.after is None and queues:
        deleted[report.name] = log_end
    if deleted:
        content[DELETED_TOPICS] = dict(sorted(deleted.items()))


def _note(files: StoreFiles, kind: _Kind, report: EntryReport) -> int:
    """Note what stays, or is out of reach, and return how many queues there are of the topic."""
    if kind is _GROUP:
        if report.after is None:
            owned = sum(len(kept) for owner, kept in offset_file_of(files).owners() if owner.group == report.name)
            if owned:
                report.notes.append(
                    f"{counted(owned, 'offset')} of the group stay: `rmqctl offsets delete -g` removes them"
                )
        return 0
    queues = files.queues.of_topics(report.name.__eq__)
    if report.after is None:
        if queues:
            report.notes.append(
                f"{counted(len(queues), 'queue')} and the offsets of groups stay: `rmqctl purge -t` removes them"
            )
        return len(queues)
    readable = report.after.get("readQueueNums")
    minimum = files.log.min_offset
    if isinstance(readable, int):
        hidden = [
            queue.queue_id
            for queue in queues
            if queue.queue_id >= readable and queue.max_offset > queue.min_offset(minimum)
        ]
        if hidden:
            report.notes.append(
                f"with {counted(readable, 'read queue')} consumers cannot get the messages of "
                f"{counted(len(hidden), 'queue')}: {', '.join(map(str, sorted(hidden)))}"
            )
    return len(queues)


# Remove topics from a store: their queues, their configuration and the offsets of groups in them.
#
# The messages stay in the commitlog until its files expire, as after `mqadmin deleteTopic`.

_TABLE, _PURGE_VERSION = "topicConfigTable", "dataVersion"
_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
# in `perm`: an entry that lends its settings to new topics, such as those named as the broker and its cluster
_PERM_INHERIT = 1
_DLQ_PREFIX, _REPLY_SUFFIX = "%DLQ%", "_REPLY_TOPIC"


class PurgedTopic(NamedTuple):
    """A topic that goes. `configured`: topics.json names it. `messages`: in its queues; they stay in the log.
    `offsets`: of groups in this topic."""

    topic: str
    reason: str
    configured: bool
    queues: int
    messages: int
    offsets: int


@dataclass(slots=True)
class PurgeReport:
    """The topics that went, or with `dry_run` would go."""

    _repr_html_ = as_html

    topics: list[PurgedTopic] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    journal: str | None = None
    dry_run: bool = False
    operations: list[dict[str, Any]] = field(default_factory=list)


def purge_topics(
    files: StoreFiles, topics: Iterable[str], change: ChangeOptions, *, orphans: bool = False
) -> PurgeReport:
    """Remove `topics`, or with `orphans` those that are configured without queues and messages, and those with queues
    that topics.json does not name.

    RefusedError for a topic of the broker's own and for a store that was not closed cleanly; NotFoundError for a topic
    that the store does not know. StoreInUseError; CorruptError; UnsupportedError for tables in a RocksDB.
    """
    report = PurgeReport(dry_run=change.dry_run)
    with changing(files, "purge", change, mends=False) as planned:
        _require_at_rest(planned.files)
        purge = _Purge(planned, report)
        if orphans:
            purge.add_orphans(change.events)
        for topic in dict.fromkeys(topics):
            purge.add(topic, "named")
        purge.plan()
        report.operations = planned.rows()
    report.journal = planned.kept_in
    return report


def plan_queue_removal(layout: StoreLayout, topic: str, plan: Plan) -> None:
    """Plan that the folders of a topic's queues are moved out of the store."""
    for root in (layout.consumequeue, layout.batchconsumequeue, layout.consumequeue_ext):
        folder = topic_directory(root, topic)
        if is_there(folder):
            plan.add(MoveAway(folder))


def _require_at_rest(files: StoreFiles) -> None:
    if files.has_abort():
        raise RefusedError(
            "the store was not closed cleanly: a recovery makes the queues of removed topics again",
            file=files.layout.abort,
            hint="run `rmqctl recover` first",
        )


class _Purge:
    """The topics of one purge, and its plan."""

    def __init__(self, change: PlannedChange, report: PurgeReport) -> None:
        self._files = change.files
        self._change = change
        self._report = report
        self._topics_path = self._files.layout.config / TOPICS
        refuse_database(self._topics_path)
        self._content, self._entries = _topics_of(self._topics_path)
        self._offsets = offset_file_of(self._files)

    def add(self, topic: str, reason: str) -> None:
        """Take a topic into the plan. RefusedError, NotFoundError."""
        if is_brokers_own(topic):
            raise RefusedError(f"{topic} is a topic of the broker itself, which needs it", hint="leave it out")
        queues = self._files.queues.of_topics(topic.__eq__)
        minimum = self._files.log.min_offset
        found = PurgedTopic(
            topic,
            reason,
            topic in self._entries,
            len(queues),
            sum(max(0, queue.max_offset - queue.min_offset(minimum)) for queue in queues),
            sum(len(offsets) for _, offsets in self._offsets_in(topic)),
        )
        if not (found.configured or found.queues or found.offsets):
            raise NotFoundError(
                f"neither topics.json nor a queue nor an offset names {topic!r}",
                hint="`rmqctl ls --topics` lists topics; messages in the log alone go when its files expire",
            )
        self._report.topics.append(found)

    def add_orphans(self, events: Events) -> None:
        """Take in all orphans. RefusedError where topics.json does not say which topics there are."""
        names = KnownNames.of(self._files)
        if names.topics is None:
            raise RefusedError(
                "topics.json cannot be read, is not there or names nothing: orphans cannot be determined",
                file=self._topics_path,
                hint="name the topics: `rmqctl purge -t TOPIC`",
            )
        with_queues = {queue.topic for queue in self._files.queues.all()}
        for topic in sorted(with_queues):
            if names.is_unconfigured(topic):
                self.add(topic, "topics.json does not name it")
        unused = [name for name in sorted(self._entries) if name not in with_queues and self._may_be_unused(name)]
        if unused:
            used = {*count_topics(self._files.log, events), *_pending_topics(self._files)}
            for topic in unused:
                if topic not in used:
                    self.add(topic, "no queue and no message")

    def _may_be_unused(self, topic: str) -> bool:
        """Return whether an entry without queues may be an orphan: retries and dead letters are those of a group."""
        entry = self._entries[topic]
        perm = entry.get("perm") if isinstance(entry, dict) else None
        is_template = isinstance(perm, int) and perm & _PERM_INHERIT
        return not (
            is_brokers_own(topic)
            or is_template
            or topic.endswith(_REPLY_SUFFIX)
            or topic.startswith((RETRY_PREFIX, _DLQ_PREFIX, LMQ_PREFIX))
        )

    def _offsets_in(self, topic: str) -> Iterator[tuple[tuple[str, str], dict[int, int]]]:
        for owner, offsets in self._offsets.owners():
            if owner.topic == topic and not owner.is_broadcast:
                yield (owner.group, owner.topic), offsets

    def plan(self) -> None:
        """Plan the removal of all that was taken in."""
        gone = {one.topic for one in self._report.topics}
        now = time.time_ns() // 1_000_000
        plan = self._change.plan
        for topic in sorted(gone):
            plan_queue_removal(self._files.layout, topic, plan)
        if gone:
            plan_file(
                self._change,
                self._topics_path,
                _without(self._content, dict.fromkeys(gone, self._files.log.written_end()), now),
            )
        removed = {key: dict.fromkeys(offsets) for topic in gone for key, offsets in self._offsets_in(topic)}
        if removed:
            plan_file(self._change, self._offsets.path, content_with(self._offsets, removed, now))
        plan.messages_skipped = sum(one.messages for one in self._report.topics)
        self._note(self._offsets)

    def _note(self, offsets: OffsetFile) -> None:
        notes = self._report.notes
        if offsets.note:
            notes.append(offsets.note)
        messages = sum(one.messages for one in self._report.topics)
        if messages:
            notes.append(
                f"{counted(messages, 'message')} of these topics stay in the commitlog until its files expire. "
                "A recovery after a crash and `rmqctl rebuild` make queues for them again"
            )
            gone = {one.topic for one in self._report.topics}
            if not any(queue.max_offset for queue in self._files.queues.of_topics(lambda topic: topic not in gone)):
                notes.append(
                    "No other queue holds a message: the next start of a broker makes these queues again, even after "
                    "a clean stop (`rmqctl predict` lists them)"
                )


def _topics_of(path: Path) -> tuple[dict[Any, Any], dict[str, Any]]:
    """The content of topics.json, and its entries. CorruptError where it is not a table of topics."""
    loaded = load_config(path)
    if loaded is None:
        return {}, {}
    table = loaded.content.get(_TABLE) if isinstance(loaded.content, dict) else None
    if not isinstance(table, dict):
        raise CorruptError(f"holds no table {_TABLE}", file=loaded.source, hint="`rmqctl check` shows the damage")
    return dict(loaded.content), {str(name): entry for name, entry in table.items()}


def _without(content: dict[Any, Any], gone: Mapping[str, int], now: int) -> bytes:
    """Return topics.json without some topics, as a new version of `now` (ms). `gone`: each with the log's end.

    They are recorded as deleted: where topics.json names no other topic, nothing else distinguishes a removed topic
    from one whose queues were lost.
    """
    entries = (content.get(_TABLE) or {}).items()
    after = {**content, _TABLE: {name: entry for name, entry in entries if str(name) not in gone}}
    after[DELETED_TOPICS] = dict(sorted({**deleted_in(content), **gone}.items()))
    if isinstance(content.get(_PURGE_VERSION), dict):
        after[_PURGE_VERSION] = next_version(content[_PURGE_VERSION], now)
    return format_config_json(after).encode("utf-8")


def _pending_topics(files: StoreFiles) -> set[str]:
    """Return the topics that delayed and half messages are for."""
    found = set()
    for topic in (SCHEDULE_TOPIC, TIMER_TOPIC, _HALF_TOPIC):
        for queue in files.queues.of_topics(topic.__eq__):
            for unit in queue.units(queue.min_offset(files.log.min_offset)):
                message = message_if_any(files.log, unit.physical_offset) if unit.is_written else None
                if message is not None:
                    found.add(message.properties().get(REAL_TOPIC, ""))
    return found
