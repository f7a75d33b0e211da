"""`rmqctl ls`: topics, queues or files of a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from rmqctl.flags.options import StoreLocation, output_options, queue_option, store_options, topic_option
from rmqctl.formats.errors import CorruptError, NotFoundError
from rmqctl.output import outcome as exit_codes
from rmqctl.output.outcome import ToldDamage
from rmqctl.store.options import Events

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.message_store import MessageStore

_TIMES = ("first_store_timestamp", "last_store_timestamp")
_TOPIC_COLUMNS = ("topic", "queues", "messages", "bytes", *_TIMES)
_QUEUE_COLUMNS = ("topic", "queue_id", "min_offset", "max_offset", "messages", "bytes", *_TIMES)
# what a narrow terminal goes without, first first
_DROPPABLE = ("detail", "on_disk_bytes", "last_offset", "min_offset", "first_store_timestamp")
_FILE_COLUMNS = ("kind", "path", "size", "on_disk_bytes", "first_offset", "last_offset", "detail")


@click.command(
    epilog="""\b
Examples:
  rmqctl ls -s /data/store                     topics
  rmqctl ls -s /data/store --queues -t Orders  queues of one topic
  rmqctl ls -s /data/store --files --json"""
)
@store_options
@click.option("--topics", "what", flag_value="topics", default="topics", help="Topics with their sums (the default).")
@click.option("--queues", "what", flag_value="queues", help="Queues with their offsets.")
@click.option("--files", "what", flag_value="files", help="Every file, by what it is.")
@topic_option
@queue_option
@output_options
def ls(store: StoreLocation, output: Output, what: str, topic: str | None, queue_id: int | None) -> int:
    """List topics, queues or files.

    Messages and bytes are those that the consume queues lead to. Where the queues are lost, topics
    are counted from the commitlog instead, which is said.
    """
    from rmqctl.opening import open_store

    if what == "files" and (topic is not None or queue_id is not None):
        raise click.UsageError("-t and -q choose topics and queues, not files")
    if what == "topics" and queue_id is not None:
        what = "queues"
    damage = ToldDamage(output)
    with open_store(store) as opened:
        if what != "files":
            _tell_unread(opened, topic, damage)
        if opened.files.dledger is not None and what != "files":
            output.talk(f"note: {opened.files.dledger.said}: messages are those of the queues, times are not known")
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
        return _shown(output, damage, _TOPIC_COLUMNS, _topics(opened, output, topic), otherwise)


def _topics(opened: MessageStore, output: Output, topic: str | None) -> Iterator[dict[str, Any]]:
    from rmqctl.opening import log_bytes
    from rmqctl.output.progress import progress

    log = opened.files.log
    if opened.has_queue_files() or not log.files:
        yield from opened.topics(topic)
        return
    with progress("reading the commitlog", log_bytes(opened.files), "bytes") as bar:
        rows = list(opened.topics(topic, events=Events(bar.advance)))
    if rows:  # else all topics were removed, and their queues with them
        output.talk("the consume queues cannot be read: counted from the commitlog")
    yield from rows


def _tell_unread(opened: MessageStore, topic: str | None, damage: ToldDamage) -> None:
    """Report messages that the rows leave out: in no queue yet, or in logs that are not read."""
    from rmqctl.store.answers.undispatched import undispatched
    from rmqctl.store.answers.unread import unread_messages

    if opened.has_queue_files():
        undispatched(opened.files, Events(damage=damage))
    else:
        try:
            opened.files.queues.all()
        except CorruptError as broken:  # a RocksDB: topics are counted from the log instead
            damage(broken)
    for error in unread_messages(opened.files, topic):
        damage(error)


def _shown(
    output: Output, damage: ToldDamage, columns: tuple[str, ...], rows: Iterator[dict[str, Any]], otherwise: str
) -> int:
    if not output.rows(columns, rows, droppable=_DROPPABLE) and not damage.is_uncertain:
        raise NotFoundError(otherwise, hint="`rmqctl info` says what the store holds")
    return exit_codes.DAMAGE_OR_NOTHING if damage.is_uncertain or damage.count else exit_codes.OK
