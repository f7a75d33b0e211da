"""Remove topics from a store: their queues, their configuration and the offsets of groups in them.

The messages stay in the commitlog until its files expire, as after `mqadmin deleteTopic`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.config_json import format_config_json
from rmqctl.formats.errors import CorruptError, NotFoundError, RefusedError
from rmqctl.formats.properties import REAL_TOPIC
from rmqctl.formats.wording import counted
from rmqctl.store.answers.dead_letters import RETRY_PREFIX
from rmqctl.store.answers.known_names import KnownNames
from rmqctl.store.commitlog.one_message import message_if_any
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.config.config_files import DELETED_TOPICS, deleted_in, load_config, next_version
from rmqctl.store.config.homes import TOPICS, refuse_database
from rmqctl.store.config.topic_names import is_brokers_own
from rmqctl.store.files.layout import StoreLayout, topic_directory
from rmqctl.store.files.presence import is_there
from rmqctl.store.info.log_numbers import count_topics
from rmqctl.store.journal.frame import PlannedChange, Terms, changing
from rmqctl.store.journal.plan import MoveAway, Plan
from rmqctl.store.offsets.change import plan_file
from rmqctl.store.offsets.offset_file import OffsetFile, content_with, offset_file_of
from rmqctl.store.queues.dispatch import LMQ_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from rmqctl.store.store_files import StoreFiles

_TABLE, _VERSION = "topicConfigTable", "dataVersion"
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

    topics: list[PurgedTopic] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    journal: str | None = None
    dry_run: bool = False
    operations: list[dict[str, Any]] = field(default_factory=list)


def purge_topics(
    files: StoreFiles,
    topics: Iterable[str],
    terms: Terms,
    *,
    orphans: bool = False,
    progress: Progress | None = None,
) -> PurgeReport:
    """Remove `topics`, or with `orphans` those that are configured without queues and messages, and those with queues
    that topics.json does not name.

    RefusedError for a topic of the broker's own and for a store that was not closed cleanly; NotFoundError for a topic
    that the store does not know. StoreInUseError; CorruptError; UnsupportedError for tables in a RocksDB.
    """
    report = PurgeReport(dry_run=terms.dry_run)
    with changing(files, "purge", terms, mends=False) as change:
        _require_at_rest(change.files)
        purge = _Purge(change, report)
        if orphans:
            purge.add_orphans(progress)
        for topic in dict.fromkeys(topics):
            purge.add(topic, "named")
        purge.plan()
        report.operations = change.rows()
    report.journal = change.kept_in
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

    def add_orphans(self, progress: Progress | None) -> None:
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
            used = {*count_topics(self._files.log, progress), *_pending_topics(self._files)}
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
            plan_file(self._change, self._topics_path, _without(self._content, gone, now))
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
                "A recovery after a crash, `rmqctl recover` and `rmqctl rebuild` make queues for them again"
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
        raise CorruptError(f"holds no table {_TABLE}", file=loaded.source, hint="`rmqctl check` says what is wrong")
    return dict(loaded.content), {str(name): entry for name, entry in table.items()}


def _without(content: dict[Any, Any], gone: set[str], now: int) -> bytes:
    """Return topics.json without some topics, as a new version of `now` (ms).

    They are recorded as deleted: where topics.json names no other topic, nothing else distinguishes a removed topic
    from one whose queues were lost.
    """
    entries = (content.get(_TABLE) or {}).items()
    after = {**content, _TABLE: {name: entry for name, entry in entries if str(name) not in gone}}
    after[DELETED_TOPICS] = sorted(deleted_in(content) | gone)
    if isinstance(content.get(_VERSION), dict):
        after[_VERSION] = next_version(content[_VERSION], now)
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
