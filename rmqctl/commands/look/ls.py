"""`rmqctl ls`: topics, queues or files of a store."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from rmqctl.flags.options import (
    StoreLocation,
    as_recovered_option,
    output_options,
    queue_option,
    store_options,
    topic_option,
)
from rmqctl.formats.errors import CorruptError, NotFoundError
from rmqctl.output import outcome as exit_codes
from rmqctl.output.outcome import ToldDamage, hidden_by_damage
from rmqctl.store.options import Events

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.message_store import MessageStore

_OVER_TIME = "over_time"
_PARTS = 8
"""Characters of a sparkline."""
_TIMES = ("first_store_timestamp", "last_store_timestamp")
_TOPIC_COLUMNS = ("topic", "queues", "messages", "bytes", *_TIMES)
_QUEUE_COLUMNS = ("topic", "queue_id", "min_offset", "max_offset", "messages", "bytes", *_TIMES)
# what a narrow terminal goes without, first first
_DROPPABLE = ("detail", "on_disk_bytes", "last_offset", "min_offset", "first_store_timestamp", _OVER_TIME)
_TIERED_OFFSETS = ("tiered_min_offset", "tiered_max_offset", "min_offset", "max_offset", "in_neither")
_TIERED_COLUMNS = ("topic", "queue_id", *_TIERED_OFFSETS, "segments", "bytes", "first_store_timestamp")
_FILE_COLUMNS = ("kind", "path", "size", "on_disk_bytes", "first_offset", "last_offset", "detail")


@click.command(
    epilog="""\b
Examples:
  rmqctl ls -s /data/store                     topics
  rmqctl ls -s /data/store --queues -t Orders  queues of one topic
  rmqctl ls -s /data/store --tiered            what tiered storage has of each queue
  rmqctl ls -s /data/store --files --json"""
)
@store_options
@as_recovered_option
@click.option("--topics", "what", flag_value="topics", default="topics", help="Topics with their sums (the default).")
@click.option("--queues", "what", flag_value="queues", help="Queues with their offsets.")
@click.option("--files", "what", flag_value="files", help="Every file, by what it is.")
@click.option("--tiered", "what", flag_value="tiered", help="Queues in tiered storage, and what is in neither.")
@topic_option
@queue_option
@output_options
def ls(store: StoreLocation, output: Output, what: str, topic: str | None, queue_id: int | None) -> int:
    """List topics, queues or files.

    A table of topics shows when their messages were stored: `over time` is the time from the first message
    to the last of all, and the highest bar is the busiest part of one topic.

    Messages and bytes are counted from the consume queues. If the queues are lost, they are counted
    from the commitlog instead, with a note.
    """
    from rmqctl.opening import open_store

    if what == "files" and (topic is not None or queue_id is not None):
        raise click.UsageError("-t and -q choose topics and queues, not files")
    if what == "topics" and queue_id is not None:
        what = "queues"
    damage = ToldDamage(output)
    with open_store(store) as opened:
        if what == "tiered":
            from rmqctl.store.read.tiered import tiered_rows

            rows = tiered_rows(opened.files, topic, queue_id, Events(damage=damage))
            return _shown(output, damage, _TIERED_COLUMNS, rows, "tiered storage has no such queue")
        if what != "files":
            _tell_unread(opened, topic, damage, of_queues=what == "queues")
        if what == "files":
            return _shown(output, damage, _FILE_COLUMNS, opened.list_files(), "the store has no files")
        if what == "queues":
            return _shown(
                output,
                damage,
                _QUEUE_COLUMNS,
                opened.queues(topic, queue_id),
                "no queue matched" if topic or queue_id is not None else "the store has no consume queues",
            )
        otherwise = "no topic matched" if topic else "no topics"
        rows = _topics(opened, output, topic)
        if output.format != "table":
            return _shown(output, damage, _TOPIC_COLUMNS, rows, otherwise)
        with _absence(damage):
            drawn = _with_sparklines(opened, topic, list(rows))
        columns = (*_TOPIC_COLUMNS, *(name for name in (_OVER_TIME,) if drawn and name in drawn[0]))
        return _shown(output, damage, columns, iter(drawn), otherwise)


def _topics(opened: MessageStore, output: Output, topic: str | None) -> Iterator[dict[str, Any]]:
    from rmqctl.opening import log_bytes
    from rmqctl.output.terminal import progress

    log = opened.files.log
    if opened.has_queue_files() or not log.files:
        yield from opened.topics(topic)
        return
    with progress("reading the commitlog", log_bytes(opened.files), "bytes") as bar:
        rows = list(opened.topics(topic, events=Events(bar.advance)))
    if rows:  # else all topics were removed, and their queues with them
        output.talk("the consume queues cannot be read: counted from the commitlog")
    yield from rows


def _with_sparklines(opened: MessageStore, topic: str | None, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with a picture of when each topic's messages were stored, from the first to the last of all."""
    from rmqctl.output.plot import sparkline
    from rmqctl.store.info.counts import messages_over_time

    first, last = (
        of((row[name] for row in rows if row[name] is not None), default=None)
        for of, name in zip((min, max), _TIMES, strict=True)
    )
    if first is None or last is None or not opened.has_queue_files():
        return rows
    counts = messages_over_time(opened.reader, topic, first, last, _PARTS)
    if not counts:
        return rows
    return [row | {_OVER_TIME: sparkline(counts.get(row["topic"], ()), sys.stdout.encoding)} for row in rows]


def _tell_unread(opened: MessageStore, topic: str | None, damage: ToldDamage, *, of_queues: bool) -> None:
    """Report messages that the rows leave out: in no queue yet, of lost queues, or in logs that are not read."""
    from rmqctl.store.answers.undispatched import undispatched
    from rmqctl.store.answers.unread import unread_messages
    from rmqctl.store.read.filter import TopicFilter

    if opened.has_queue_files() or of_queues:
        topics = TopicFilter() if topic is None else TopicFilter.of_one(topic)
        undispatched(opened.files, Events(damage=damage), topics)
    else:
        try:
            opened.files.queues.all()
        except CorruptError as broken:  # a RocksDB: topics are counted from the log instead
            damage(broken)
    try:
        opened.files.queues.light()
    except CorruptError as broken:  # a RocksDB beside the files
        damage(broken)
    for error in unread_messages(opened.files, topic):
        damage(error)


def _shown(
    output: Output, damage: ToldDamage, columns: tuple[str, ...], rows: Iterator[dict[str, Any]], otherwise: str
) -> int:
    with _absence(damage):
        if not output.rows(columns, rows, droppable=_DROPPABLE) and not damage.is_uncertain:
            raise NotFoundError(otherwise, hint="`rmqctl info` says what the store holds")
    return exit_codes.DAMAGE_OR_NOTHING if damage.is_uncertain or damage.count else exit_codes.OK


@contextmanager
def _absence(damage: ToldDamage) -> Iterator[None]:
    """Raise HiddenByDamageError for a NotFoundError where damage may hide what was asked for."""
    try:
        yield
    except NotFoundError as missing:
        is_hidden = damage.count or damage.is_uncertain
        raise hidden_by_damage(max(damage.count, 1), missing) if is_hidden else missing from None
