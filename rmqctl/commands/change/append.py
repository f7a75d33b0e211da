"""`rmqctl append`: stores one message given by flags, or many from JSON Lines, Parquet or Arrow."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click

from rmqctl.flags.options import (
    StoreLocation,
    keep_going_option,
    message_options,
    output_options,
    queue_option,
    source_option,
    store_options,
    topic_option,
)
from rmqctl.formats.errors import CorruptError, RefusedError, UnreadableError, UsageError, WriteFailedError, counted
from rmqctl.formats.message import Message
from rmqctl.output import outcome as exit_codes
from rmqctl.output.outcome import tell_bad_items
from rmqctl.output.output import note_done
from rmqctl.store.config.config_files import NOT_ALLOWED_TO_SEND, has_legal_characters, read_config
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.store_files import StoreFiles

if TYPE_CHECKING:
    from rmqctl.messages.input import MessagePiece
    from rmqctl.messages.message_source import MessageSource
    from rmqctl.output.output import Output
    from rmqctl.store.message_store import MessageStore
    from rmqctl.store.write.put import PutResult


@click.command(
    epilog="""\b
Examples:
  rmqctl append -s /data/store -t Orders -q 1 --tags paid -k order-7 --body '{"id":7}'
  rmqctl cat -s old --json | rmqctl append -s new --create --from -
  rmqctl export -s old all.parquet && rmqctl append -s new --create --from all.parquet --as-stored

The store must be intact and not in use: append never repairs. Exit code 5: refused; the message names the next step."""
)
@store_options
@topic_option.but(help="Topic of the message.")
@queue_option.but(help="Queue of the topic; 0 if not given.")
@message_options
@source_option
@click.option("--as-stored", is_flag=True, help="With --from: keep store time and store host too (an exact copy).")
@keep_going_option
@click.option(
    "--anywhere", is_flag=True,
    help="Allow system topics, invalid topic names and unknown queues.",
)  # fmt: skip
@click.option("--no-unique-key", is_flag=True, help="Do not add a unique id to new messages.")
@click.option("--create", is_flag=True, help="Create a new store if none exists.")
@output_options
def append(
    store: StoreLocation,
    output: Output,
    topic: str | None,
    queue_id: int | None,
    tags: str | None,
    key: tuple[str, ...],
    properties: tuple[str, ...],
    flag: int,
    body: str | None,
    body_file: IO[bytes] | None,
    source: IO[bytes] | None,
    as_stored: bool,
    keep_going: bool,
    anywhere: bool,
    no_unique_key: bool,
    create: bool,
) -> int:
    """Store one message, or many from JSON Lines, Parquet or Arrow.

    Fields of the producer are kept: topic, queue, flag, properties, body, born time and host. A new message gets a
    unique id; a line of `cat` keeps its own. Commitlog, consume queue and index are on disk when the command returns.
    """
    from rmqctl.opening import noting_stored

    if source is None:
        if as_stored or keep_going:
            raise click.UsageError("--as-stored and --keep-going go with --from")
        message = one_message(topic, queue_id, tags, key, properties, flag, body, body_file)
        if not no_unique_key:
            from rmqctl.network.unique_ids import UniqueIds

            message = UniqueIds().given_to(message)
        with _open(store, create) as opened, noting_stored(opened, "append"):
            _require_place(opened, message, anywhere, output)
            return _put_one(opened, message, output)
    if anywhere:
        raise click.UsageError("--anywhere is for one message: those of --from go where they say")
    if topic or key or properties or body is not None or body_file or tags or queue_id is not None or flag:
        raise click.UsageError(
            "--from takes whole messages: no -t, -q, -k, --tags, --property, --flag or --body with it"
        )
    from rmqctl.messages.message_source import message_source

    read = message_source(source, once=keep_going, unique_keys=not (as_stored or no_unique_key))
    with read as messages, _open(store, create) as opened, noting_stored(opened, "append"):
        bad = 0 if keep_going else _check_all(opened, messages, as_stored, output)
        if bad:
            raise UsageError(
                f"{counted(bad, f'bad {messages.item}')}: nothing was written",
                hint="correct them, or leave them out with --keep-going",
            )
        return _put_all(opened, messages, as_stored, output, is_checked=not keep_going)


def one_message(
    topic: str | None,
    queue_id: int | None,
    tags: str | None,
    keys: tuple[str, ...],
    properties: tuple[str, ...],
    flag: int,
    body: str | None,
    body_file: IO[bytes] | None,
) -> Message:
    """The message that flags describe; click.UsageError where they describe none."""
    from rmqctl.messages.input import properties_of

    if not topic:
        raise click.UsageError("a message needs -t TOPIC, or --from FILE for many")
    if (body is None) == (body_file is None):
        raise click.UsageError("a message needs either --body TEXT or --body-file FILE")
    others = {}
    for text in properties:
        name, separator, value = text.partition("=")
        if not separator or not name or not value:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="'--property'")
        others[name] = value
    data = body.encode("utf-8", "surrogateescape") if body is not None else body_file.read() if body_file else b""
    return Message(topic, data, queue_id or 0, flag, properties_of(tags, list(keys), others))


def _open(store: StoreLocation, create: bool) -> MessageStore:
    from rmqctl.opening import broker_config, listen, naming_create
    from rmqctl.output.terminal import progress
    from rmqctl.store.message_store import MessageStore

    listen()
    config = broker_config(store)
    with naming_create(store.path, config), progress("checking the end of the commitlog", None, "bytes") as bar:
        return MessageStore.open(store.path, "rw", config, create=create, allocate_ahead=False, progress=bar.advance)


def _row(message: Message, result: PutResult) -> dict[str, Any]:
    return {
        "status": str(result.status),
        "msg_id": result.message_id,
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": result.queue_offset,
        "physical_offset": result.physical_offset,
    }


def _require_place(opened: MessageStore, message: Message, anywhere: bool, output: Output) -> None:
    """RefusedError where a broker would refuse topic or queue, unless `anywhere`; a word where it would have to make
    the topic first."""

    places = TopicQueues.of(opened.files)
    if not anywhere:
        places.require(message)
    if places.is_unknown(message.topic):
        output.talk(
            f"note: topics.json has no topic {message.topic!r}: no consumer gets its messages until it is created, as "
            "with `mqadmin updateTopic`"
        )


def _put_one(opened: MessageStore, message: Message, output: Output) -> int:
    result = opened.put(message)
    _require_stored(result)
    opened.flush()
    _note_stored(opened, 1, result.physical_offset)
    output.record(_row(message, result))
    return exit_codes.OK


def _note_stored(opened: MessageStore, stored: int, first: int | None) -> None:
    """Record what is stored before that is printed."""
    if not stored:
        return
    end = opened.files.log.max_offset
    what = counted(stored, "message was stored", "messages were stored")
    note_done(
        f"{what}, up to physical offset {end}", stored=stored, first_physical_offset=first, end_physical_offset=end
    )


def _require_stored(result: PutResult, place: str = "") -> None:
    """UsageError for a message RocketMQ does not take, WriteFailedError for a store that cannot take it."""
    try:
        result.raise_failure(place)
    except WriteFailedError as error:
        error.hint = "; ".join(filter(None, ["what was stored before it is kept", error.hint]))
        raise
    if not result.status.is_stored:
        raise UsageError(f"{result.status}: {result.detail}")


def _sorted_out(opened: MessageStore, piece: MessagePiece, as_stored: bool, accepted: set[str]) -> MessagePiece:
    """The piece without what cannot be stored, which is among its errors then. `accepted`: topics found good."""
    if isinstance(piece.content, list):
        return piece.without(opened.check_many(piece.content, as_stored=as_stored))
    try:
        return piece.without(opened.check_columns(piece.content, as_stored=as_stored, accepted=accepted))
    except UsageError:
        if piece.plain is None:
            raise
        return _sorted_out(opened, piece.plain(), as_stored, accepted)


def _check_all(opened: MessageStore, source: MessageSource, as_stored: bool, output: Output) -> int:
    """Number of messages that cannot be stored; each is named."""
    from rmqctl.output.terminal import progress

    bad, accepted = 0, set[str]()
    with progress("checking the messages", source.size, "bytes") as bar:
        for piece in source.pieces(as_stored):
            bad = tell_bad_items(output, source.item, _sorted_out(opened, piece, as_stored, accepted).errors, bad)
            bar.advance(piece.bytes)
    return bad


def _put_all(opened: MessageStore, source: MessageSource, as_stored: bool, output: Output, *, is_checked: bool) -> int:
    """Put all that is good; `is_checked`: all of it is."""
    from rmqctl.output.terminal import progress

    told_up_to, accepted = opened.files.log.max_offset, set[str]()
    summary: dict[str, Any] = {"stored": 0, "bad_lines": 0, "first_physical_offset": None, "end_physical_offset": None}
    try:
        with progress("storing", source.size, "bytes") as bar:
            for piece in source.pieces(as_stored):
                good = piece if is_checked else _sorted_out(opened, piece, as_stored, accepted)
                summary["bad_lines"] = tell_bad_items(output, source.item, good.errors, summary["bad_lines"])
                if good.numbers:
                    _put_piece(opened, good, as_stored, source.item, summary, output)
                    told_up_to = opened.files.log.max_offset
                bar.advance(piece.bytes)
        opened.flush()
    except KeyboardInterrupt:
        from rmqctl.store.recover.recover import count_messages

        # a part of a piece may be there, too
        stored = summary["stored"] + count_messages(opened.files.log, told_up_to)
        output.talk(f"interrupted: {counted(stored, 'message is', 'messages are')} stored")
        raise
    summary["end_physical_offset"] = opened.files.log.max_offset
    _note_stored(opened, summary["stored"], summary["first_physical_offset"])
    output.record(summary)
    return exit_codes.USAGE if summary["bad_lines"] else exit_codes.OK


def _put_piece(
    opened: MessageStore, piece: MessagePiece, as_stored: bool, item: str, summary: dict[str, Any], output: Output
) -> None:
    """Put what was found good. WriteFailedError for the first item that the store could not take after all."""
    if isinstance(piece.content, list):
        results = opened.put_many(piece.content, as_stored=as_stored)
        refused = {place: result for place, result in enumerate(results) if not result.status.is_stored}
        first = next((result.physical_offset for result in results if result.status.is_stored), None)
    else:
        try:
            result = opened.put_columns(piece.content, as_stored=as_stored)
        except UsageError:  # before any of it was stored
            if piece.plain is None:
                raise
            _put_piece(opened, piece.plain(), as_stored, item, summary, output)
            return
        refused, first = result.refused, result.first_physical_offset
    summary["stored"] += len(piece.numbers) - len(refused)
    if summary["first_physical_offset"] is None:
        summary["first_physical_offset"] = first
    errors: dict[int, str] = {}
    for place, answer in sorted(refused.items()):
        number = piece.numbers[place]
        try:
            _require_stored(answer, f"{item} {number}: ")
        except UsageError as error:
            errors[number] = error.message
    summary["bad_lines"] = tell_bad_items(output, item, errors, summary["bad_lines"])


# Whether a broker would take a message for a topic and queue: what `append` says before it stores something there.

# the timer's is as much its own, though TopicValidator does not refuse it
_NOT_ALLOWED = NOT_ALLOWED_TO_SEND | {"rmq_sys_wheel_timer"}
# what a broker makes by itself
_OWN_PREFIXES = ("%RETRY%", "%DLQ%", "%LMQ%", "rmq_sys_")
_HINT = "--anywhere stores it all the same"


class TopicQueues(NamedTuple):
    """Queues of each topic as config/topics.json has them; None if unknown."""

    queues: dict[str, int] | None

    @classmethod
    def of(cls, files: StoreFiles) -> TopicQueues:
        """Those of a store. Without a topics.json, or with a damaged one, everything may be right."""
        try:
            content = read_config(files.layout.config / "topics.json")
            table = content["topicConfigTable"]
            return cls({topic: _queues(entry) for topic, entry in table.items()})
        except (CorruptError, UnreadableError, AttributeError, KeyError, TypeError, ValueError):
            return cls(None)

    def is_unknown(self, topic: str) -> bool:
        """Whether topics.json would have to name the topic and does not."""
        if self.queues is None or topic in self.queues or topic in _NOT_ALLOWED:
            return False
        return not topic.startswith(_OWN_PREFIXES)

    def require(self, message: Message) -> None:
        """RefusedError where a broker refuses topic or queue (AbstractSendMessageProcessor#msgCheck)."""
        # what no store can take, the store says
        if is_safe_topic(message.topic) and not has_legal_characters(message.topic):
            raise RefusedError(
                f"no broker takes a topic {message.topic!r}: letters, digits and _ - % | may stand in its name",
                hint=_HINT,
            )
        if message.topic in _NOT_ALLOWED:
            raise RefusedError(f"no producer may send to {message.topic}, which the broker writes itself", hint=_HINT)
        queues = (self.queues or {}).get(message.topic)
        if queues is not None and message.queue_id >= queues:
            numbers = "0" if queues == 1 else f"0 to {queues - 1}"
            raise RefusedError(
                f"topic {message.topic!r} has {counted(queues, 'queue')} in topics.json, {numbers}: no queue "
                f"{message.queue_id}",
                hint=_HINT,
            )


def _queues(entry: dict[str, Any]) -> int:
    return max(int(entry.get("readQueueNums", 0)), int(entry.get("writeQueueNums", 0)))
