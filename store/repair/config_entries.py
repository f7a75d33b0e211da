"""Create, change and delete entries of topics.json and subscriptionGroup.json in a store at rest.

`entry_after` is the rule for one entry, for those of brokers that run as well. An entry is all that changes: queue
files, messages and offsets stay. The version of the data goes up, and the file before becomes the backup, as when a
broker writes it (ConfigManager#persist).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rmqctl.formats.config_json import format_config_json
from rmqctl.formats.errors import CorruptError, NotFoundError, RefusedError, UsageError
from rmqctl.formats.wording import counted
from rmqctl.store.answers.config_offsets import is_own_group
from rmqctl.store.config.attributes import (
    Attribute,
    changed_attributes,
    group_attributes,
    parsed_change,
    topic_attributes,
)
from rmqctl.store.config.config_files import DELETED_TOPICS, deleted_in, load_config, next_version
from rmqctl.store.config.homes import GROUPS, TOPICS, refuse_database
from rmqctl.store.config.topic_names import MOST_QUEUES, group_problem, is_brokers_own, topic_problem
from rmqctl.store.config.versions import RELEASES
from rmqctl.store.journal.frame import PlannedChange, Terms, changing
from rmqctl.store.offsets.change import plan_file
from rmqctl.store.offsets.offset_file import offset_file_of
from rmqctl.store.store_files import StoreFiles

_VERSION, _ATTRIBUTES = "dataVersion", "attributes"
# no older version has an attribute that it does not have
_NEWEST = RELEASES["5.5.0"]
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

    `settings` by the names of the file. `attributes`: changes as mqadmin takes them, `+name=value,-name`.
    """

    kind: str
    action: str
    name: str
    settings: Mapping[str, Any] = {}
    attributes: str = ""


@dataclass(slots=True)
class EntryReport:
    """An entry `before` and `after` the change; None where there is none."""

    name: str
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)
    journal: str | None = None
    dry_run: bool = False
    operations: list[dict[str, Any]] = field(default_factory=list)


def change_entry(files: StoreFiles, wanted: EntryChange, terms: Terms) -> EntryReport:
    """Create, change or delete an entry, and keep the files before in a journal.

    UsageError, RefusedError and NotFoundError as `entry_after`. StoreInUseError; CorruptError; UnsupportedError for
    tables in a RocksDB.
    """
    require_possible(wanted)
    report = EntryReport(wanted.name, dry_run=terms.dry_run)
    with changing(files, f"{wanted.kind}s", terms, mends=False) as change:
        _plan(change, wanted, report)
        report.operations = change.rows()
    report.journal = change.kept_in
    return report


def require_possible(wanted: EntryChange) -> None:
    """UsageError for settings that there are not; RefusedError for names and attributes that RocketMQ refuses."""
    if wanted.kind not in _KINDS or wanted.action not in _ACTIONS:
        raise UsageError(f"{wanted.kind} {wanted.action} is not known: {', '.join(_KINDS)}; {', '.join(_ACTIONS)}")
    kind = _KINDS[wanted.kind]
    _require_settings(kind, wanted.settings)
    _require_name(kind, wanted.name)
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


def _require_name(kind: _Kind, name: str) -> None:
    """Refuse a name with the words of TopicValidator or Validators."""
    if kind is _TOPIC:
        problem = topic_problem(name)
        if problem is None and is_brokers_own(name):
            problem = f"The topic[{name}] is conflict with system topic."
    else:
        problem = group_problem(name)
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
        raise CorruptError(f"holds no table {kind.table}", file=path, hint="`rmqctl check` says what is wrong")
    entry = table.get(report.name)
    if entry is not None and not isinstance(entry, dict):
        raise CorruptError(
            f"the entry of {report.name!r} is not an object", file=path, hint="`rmqctl check` says what is wrong"
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
        _keep_deleted(new, report, queues)
    plan_file(change, path, format_config_json(new).encode("utf-8"))


def _keep_deleted(content: dict[Any, Any], report: EntryReport, queues: int) -> None:
    """Keep the names of deleted topics whose queues stay: `serve` makes topics of queues that are not among them."""
    deleted = deleted_in(content) - {report.name}
    content.pop(DELETED_TOPICS, None)
    if report.after is None and queues:
        deleted.add(report.name)
    if deleted:
        content[DELETED_TOPICS] = sorted(deleted)


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
