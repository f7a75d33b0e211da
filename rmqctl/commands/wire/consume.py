"""`rmqctl consume`: takes messages from a broker, as a member of a group or as an onlooker."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rmqctl.commands.wire.by_grpc import RESULT_COLUMNS, ForMessage, consume_by_grpc, grpc_option
from rmqctl.flags.options import (
    by_sql,
    filter_option,
    group_option,
    namesrv_option,
    output_options,
    release_option,
    tag_option,
    tls_options,
    topic_option,
    zone_option,
)
from rmqctl.flags.spark_options import namespace_option, trace_option, trace_topic_option
from rmqctl.flags.types import COUNT, LARGEST_INT, SECONDS, TIME
from rmqctl.formats.errors import NotFoundError, RemoteError, counted
from rmqctl.formats.properties import KEYS, TAGS, UNIQUE_KEY
from rmqctl.output import outcome as exit_codes
from rmqctl.output.output import FIRST_PAGE

if TYPE_CHECKING:
    from rmqctl.formats.message import StoredMessage
    from rmqctl.network.clients.channel import Dial
    from rmqctl.network.clients.client import Where
    from rmqctl.network.clients.consumer import Consumer
    from rmqctl.network.clients.membership import Allocate
    from rmqctl.network.clients.proxied import ProxyAddress
    from rmqctl.network.clients.push.push_consumer import MemberOptions, PushConsumer
    from rmqctl.output.output import Output

    _Parameter = click.ParamType[Any]
else:
    _Parameter = click.ParamType

_PUSH_FLAGS = "--exec, --ordered, --broadcast, --no-client-rebalance"
STRATEGIES = ("avg", "circle", "config", "consistent-hash", "machine-room", "machine-room-nearby")
_KILL_SECONDS = 10.0
# whom every broker knows, and whose offsets nobody reads
# longer than a broker takes to restart its listener, short enough for a command that waits
_FAILING_SECONDS = 30.0
_ONLOOKER = "TOOLS_CONSUMER"


class WhereType(_Parameter):
    """first, last, or a time."""

    name = "where"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """`first` and `last` as they are, a time in ms."""
        return value if value in ("first", "last") else TIME.convert(value, param, ctx)


@click.command(
    epilog="""\b
Examples:
  rmqctl consume -n 127.0.0.1:9876 -t Orders --json
  rmqctl consume -n 127.0.0.1:9876 -t Orders --from '2h ago' --tag 'paid || refunded' --limit 10
  rmqctl consume -n 127.0.0.1:9876 -t Orders --filter "amount > 100 AND region IN ('cn', 'us')"
  rmqctl consume -n 127.0.0.1:9876 -t Orders -g billing --follow --json
  rmqctl consume -n 127.0.0.1:9876 -t Orders -g billing --trace
  rmqctl consume --grpc 127.0.0.1:8081 -t Orders -g billing

Without -g nothing is committed, so no group misses a message. With -g the command is a member of the group, as a
push consumer is: it gets its share of the queues of TOPIC and of the group's retry topic, continues at the group's
offsets, and commits what it printed. Retried messages are printed too; their topic is %RETRY%GROUP. A line on stderr
names live members of the group. If members subscribe differently, it refuses (exit code 5): it would take queues from
them without reading all their messages.
The broker evaluates --filter; it needs enablePropertyFilter=true.
--grpc goes through a proxy as a simple consumer does (the extra grpc-client): what is printed is acknowledged; without
-f it ends when the proxy has had nothing for 5 s. With --exec a message comes again as the group's backoff says.
--exec CMD runs a command for each message, without a shell: the body on its stdin, RMQCTL_TOPIC, RMQCTL_KEYS and others
in its environment. Exit status 0 acknowledges the message. Any other status sends it back: it comes again after 10 s,
30 s, 1 min, ..., and is a dead letter after --max-retries. With --ordered it holds its queue and is tried again.
Exit code 1: there was no message."""
)
@namesrv_option.but(required=False)
@grpc_option("group", "tag", "sql", "follow", "limit", "command", "threads", "timeout", "max_retries")
@tls_options
@topic_option.but(required=True, help="Topic to take messages of.")
@group_option.but(help="Be a member of this consumer group.")
@tag_option.but(help="Only messages with this tag, or one of these: 'TagA || TagB'.")
@filter_option
@click.option("--from", "begin", type=WhereType(), default="first", metavar="WHERE", show_default=True,
              help="Where to begin in queues without an offset of the group: first, last or a time.")  # fmt: skip
@zone_option
@click.option("--force", is_flag=True, help="Join although live members of the group subscribe otherwise.")
@click.option("--commit/--no-commit", default=None, help="Commit what was printed; as it is with -g.")
@click.option("-f", "--follow", is_flag=True, help="Wait for new messages; Ctrl-C ends it.")
@click.option("--limit", type=COUNT, metavar="N", help="Stop after N.")
@click.option("--exec", "command", metavar="CMD", help="Run CMD for each message; its exit status decides.")
@click.option("--threads", type=click.IntRange(1, 1000), default=1, metavar="N", show_default=True,
              help="Commands of --exec at a time.")  # fmt: skip
@click.option("--timeout", type=SECONDS, default=900.0, metavar="SECONDS",
              show_default=True, help="Kill a command of --exec after this time.")  # fmt: skip
@click.option("--max-retries", type=click.IntRange(0, LARGEST_INT), metavar="N",
              help="Retries before a message of --exec is a dead letter; as the group has it.")  # fmt: skip
@click.option("--ordered", is_flag=True, help="Lock queues and consume each in its order.")
@click.option("--broadcast", is_flag=True, help="Get all messages; keep progress in ~/.rocketmq_offsets.")
@click.option("--instance", metavar="NAME", help="Name of a --broadcast member on this host; DEFAULT.")
@click.option("--strategy", type=click.Choice(sorted(STRATEGIES)), default="avg", show_default=True,
              help="How the group shares out queues; the same for all members.")  # fmt: skip
@click.option("--no-client-rebalance", is_flag=True, help="Let brokers of 5.x assign the queues.")
@click.option("--assign", multiple=True, metavar="BROKER:QUEUE", help="A queue of --strategy config. Repeatable.")
@click.option("--room", multiple=True, metavar="ZONE",
              help="Zone of --strategy machine-room; PATTERN=ZONE: of names, nearby. Repeatable.")  # fmt: skip
@namespace_option
@click.option("--unit-name", default="", metavar="NAME", help="Unit name, part of the client id.")
@click.option("--unit-mode", is_flag=True, help="Consume in unit mode: the retry topic is marked so.")
@release_option
@trace_option.but(help="Send message traces of what is consumed; needs -g.")
@trace_topic_option
@click.option("--send-back", is_flag=True, help="Send each printed message back: it comes again after a delay.")
@output_options
def consume(
    output: Output,
    namesrv: str,
    dial: Dial,
    grpc: ProxyAddress | None,
    topic: str,
    group: str | None,
    tag: str | None,
    sql: str | None,
    begin: Where,
    force: bool,
    commit: bool | None,
    follow: bool,
    limit: int | None,
    send_back: bool,
    strategy: str,
    assign: tuple[str, ...],
    room: tuple[str, ...],
    namespace: str | None,
    unit_name: str,
    unit_mode: bool,
    release: str,
    **push: Any,
) -> int:
    """Print the messages of a topic as a broker gives them.

    A table shows the start of each body; --json prints whole messages, one a line, as they come.
    """
    from rmqctl.messages.listing import Listing, print_batches
    from rmqctl.network.clients.consumer import POLLING, Consumer
    from rmqctl.network.clients.push.push_consumer import MemberOptions
    from rmqctl.network.clients.tracing import TRACE_TOPIC

    if tag is not None and sql is not None:
        raise click.UsageError("a group subscribes a topic by --tag or by --filter")
    subscription = tag or "*" if sql is None else by_sql(sql)
    if grpc is not None:
        if group is None:
            raise click.UsageError("--grpc needs a group: -g GROUP")
        deciding = _decider(push["command"], push["timeout"]), push["threads"], push["max_retries"]
        given = group, topic, subscription, namespace
        return consume_by_grpc(output, grpc, given, deciding, follow=follow, limit=limit)
    is_assigned = push.pop("no_client_rebalance")
    if is_assigned and (push["ordered"] or push["broadcast"]):
        raise click.UsageError("--no-client-rebalance goes without --ordered and --broadcast")
    is_push = bool(push["command"] or push["ordered"] or push["broadcast"] or is_assigned)
    _refuse_flags(group, commit, force=force, is_push=is_push, send_back=send_back)
    _refuse_trace(group, push["trace"], push["trace_topic"])
    commits = group is not None if commit is None else commit
    name, allocate = group or _ONLOOKER, allocation(strategy, topic, assign, room)
    options = MemberOptions(
        begin, allocate, commits, push["broadcast"], push["instance"] or "DEFAULT", None, force, output.talk,
        dial, namespace or "", unit_name, unit_mode,
        release, client_rebalance=not is_assigned, failing_seconds=_FAILING_SECONDS, joins=group is not None,
    )  # fmt: skip
    if is_push:
        arguments = PushArguments(namesrv, name, topic, subscription, limit, **push)
        return _push(output, arguments, options, to_the_end=not follow)
    settings = replace(POLLING, enable_trace=push["trace"], trace_topic=push["trace_topic"] or TRACE_TOPIC)
    consumer = Consumer(namesrv, name, topic, subscription, settings=settings, **vars(options))
    with (
        consumer,
        contextlib.closing(consumer.batches(_batch_size(output), to_the_end=not follow, limit=limit)) as batches,
    ):
        count = print_batches(Listing(output), _sent_back(batches, consumer) if send_back else batches)
    _require_committed(consumer)
    if not count:
        raise NotFoundError(f"topic {topic!r} has no message for {f'group {group!r}' if group else 'this'}")
    return exit_codes.OK


def _require_committed(consumer: Consumer | PushConsumer) -> None:
    """RemoteError where a consumer that has ended could not commit what was consumed."""
    missing = consumer.uncommitted
    if missing:
        raise RemoteError(f"the offsets of {counted(len(missing), 'queue')} are not committed: messages come again")


def _batch_size(output: Output) -> int:
    """Return how many messages at most are printed before they count as consumed: the first lines of a table settle
    its columns."""
    return FIRST_PAGE if output.format == "table" else 1


def _refuse_flags(group: str | None, commit: bool | None, *, force: bool, is_push: bool, send_back: bool) -> None:
    """UsageError for flags that need a group, or do not go together."""
    if group is None and commit:
        raise click.UsageError("--commit needs the group that is to have consumed the messages: -g GROUP")
    if group is None and force:
        raise click.UsageError("--force goes with -g GROUP")
    if group is None and (is_push or send_back):
        raise click.UsageError(f"{_PUSH_FLAGS} and --send-back need a group: -g GROUP")
    if is_push and send_back:
        raise click.UsageError(f"--send-back goes without {_PUSH_FLAGS}")


def _refuse_trace(group: str | None, trace: bool, trace_topic: str | None) -> None:
    if trace_topic is not None and not trace:
        raise click.UsageError("--trace-topic goes with --trace")
    if trace and group is None:
        raise click.UsageError("--trace goes with -g GROUP: without a group nothing is consumed")


def _sent_back(batches: Iterator[list[StoredMessage]], consumer: Consumer) -> Iterator[list[StoredMessage]]:
    """Yield messages, and send them back to the group's retry topic once they are printed."""
    for batch in batches:
        yield batch
        for message in batch:
            consumer.send_back(message)


def allocation(strategy: str, topic: str, assign: tuple[str, ...], rooms: tuple[str, ...]) -> Allocate:
    """Return the way in which queues are shared out. UsageError for what does not belong to `strategy`."""
    from rmqctl.network.clients import membership as allocate
    from rmqctl.network.remoting.codec import MessageQueue

    of_rooms = strategy if strategy == "machine-room-nearby" else "machine-room"
    for option, given, wanted in (("--assign", assign, "config"), ("--room", rooms, of_rooms)):
        if bool(given) is not (strategy == wanted):
            raise click.UsageError(f"{option} goes with --strategy {wanted}, and that with {option}")
    patterns = [text.rpartition("=")[::2] for text in rooms]

    def room_of(name: str) -> str:
        """Return the zone of a broker's name or a client id, by the first pattern for it."""
        return next((room for pattern, room in patterns if fnmatchcase(name, pattern)), "")

    if strategy == "machine-room-nearby" and not all(map(all, patterns)):
        raise click.UsageError(
            f"--room {' '.join(rooms)}: write it as PATTERN=ZONE, 'broker-a*=east' and '10.1.*=east'"
        )
    queues: dict[MessageQueue, None] = {}
    for text in assign:
        broker, _, number = text.rpartition(":")
        if not broker or not (number.isascii() and number.isdigit()):
            raise click.UsageError(f"--assign {text}: write it as BROKER:QUEUE, broker-a:0")
        queues[MessageQueue(broker, int(number), topic)] = None
    ways: dict[str, Allocate] = {
        "avg": allocate.averagely,
        "circle": allocate.by_circle,
        "config": allocate.by_config(queues),
        "consistent-hash": allocate.by_consistent_hash,
        "machine-room": allocate.by_machine_room(rooms),
        "machine-room-nearby": allocate.by_machine_room_nearby(room_of),
    }
    return ways[strategy]


class PushArguments(NamedTuple):
    """What a push consumer of the command line consumes, and how."""

    namesrv: str
    group: str
    topic: str
    tags: str
    limit: int | None
    command: str | None
    threads: int
    timeout: float
    max_retries: int | None
    ordered: bool
    broadcast: bool
    instance: str | None
    trace: bool
    trace_topic: str | None


def _push(output: Output, given: PushArguments, options: MemberOptions, *, to_the_end: bool) -> int:
    """Consume as a push consumer: print the messages, or hand each to a command."""
    from rmqctl.messages.listing import Listing, print_batches
    from rmqctl.network.clients.push.push_consumer import PushConsumer
    from rmqctl.network.clients.push.settings import ConsumeStatus, OrderlyStatus, PushSettings
    from rmqctl.network.clients.tracing import TRACE_TOPIC

    if given.instance is not None and not given.broadcast:
        raise click.UsageError("--instance goes with --broadcast")
    # a command is killed at the time-out, and its message sent back by that
    settings = PushSettings(
        threads=given.threads,
        batch_size=1 if given.command is not None else _batch_size(output),
        consume_timeout=given.timeout + _KILL_SECONDS,
        close_seconds=given.timeout + _KILL_SECONDS,
        max_reconsume_times=-1 if given.max_retries is None else given.max_retries,
        limit=given.limit,
        enable_trace=given.trace,
        trace_topic=given.trace_topic or TRACE_TOPIC,
    )
    statuses = OrderlyStatus if given.ordered else ConsumeStatus
    success, later = list(statuses)[:2]
    words = None if given.command is None else command_of(given.command)
    results = None if words is None else CommandResults(words, given.timeout, success, later)
    printed = PrintedMessages(success, later)
    callback = printed.consume if results is None else results.consume
    consumer = PushConsumer(
        given.namesrv,
        given.group,
        {given.topic: given.tags},
        None if given.ordered else callback,
        on_ordered=callback if given.ordered else None,
        settings=settings,
        options=options,
    )
    if results is None:
        with contextlib.closing(printed.batches(consumer, to_the_end=to_the_end)) as batches:
            count = print_batches(Listing(output), batches)
    else:
        with contextlib.closing(results.batches(consumer, to_the_end=to_the_end)) as rows:
            count = output.batches(RESULT_COLUMNS, rows, droppable=DROPPABLE_RESULT_COLUMNS)
    _require_committed(consumer)
    if not count:
        raise NotFoundError(f"topic {given.topic!r} has no message for group {given.group!r}")
    return exit_codes.OK


# Run a command for each message: the body on stdin, the rest in the environment, never through a shell.

TIMED_OUT = 124
"""Exit status of a command that was killed after its time, as of timeout(1)."""
# MAX_ARG_STRLEN of Linux: a longer variable fails the command
_LONGEST_VARIABLE = 128 * 1024 - 256


def command_of(text: str) -> list[str]:
    """Return the words of a command. UsageError where it is empty, badly quoted, or there is no such program."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise click.UsageError(f"--exec: {error}") from error
    if not words or shutil.which(words[0]) is None:
        raise click.UsageError(f"--exec: there is no program {words[0] if words else ''!r}")
    return words


_VARIABLES = (
    "topic", "queue_id", "queue_offset", "msg_id", "unique_key", "tags", "keys", "reconsume_times", "born_timestamp",
    "store_timestamp", "properties",
)  # fmt: skip


def _described(message: StoredMessage) -> dict[str, Any]:
    """Return what a command learns of a message, by the names of `cat --json`; its keys are one text."""
    properties = message.properties()
    found = {name: getattr(message, name) for name in _VARIABLES if hasattr(message, name)}
    texts = {"tags": properties.get(TAGS), "keys": properties.get(KEYS), "unique_key": properties.get(UNIQUE_KEY)}
    return {**found, **texts, "msg_id": message.message_id, "properties": properties}


def environment_of(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables for a message. A text that no variable can hold (NUL, over 128 KiB) is left out."""
    values = {name: found.get(name) for name in _VARIABLES} | {"properties": json.dumps(found["properties"])}
    texts = {f"RMQCTL_{name.upper()}": "" if value is None else str(value) for name, value in values.items()}
    return {
        name: text
        for name, text in texts.items()
        if "\0" not in text and len(text.encode("utf-8", "surrogatepass")) < _LONGEST_VARIABLE
    }


def run_for_message(command: Sequence[str], body: bytes, found: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Run a command for a message, and return the row of its exit status; after `seconds` it is killed with its
    children. `found`: of the message, as for `environment_of`.

    What it prints goes to stderr: stdout has the results. OSError where it cannot run.
    """
    # a session of its own: Ctrl-C ends the consumer, which waits for the commands that run
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=sys.__stderr__ if sys.__stderr__ is not None else subprocess.DEVNULL,
        env={**os.environ, **environment_of(found)},
        start_new_session=True,
    ) as process:
        try:
            process.communicate(body, timeout=seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            process.returncode = TIMED_OUT
    status = process.returncode
    row = {name: found[name] for name in RESULT_COLUMNS[:5]}
    return row | {"exit_status": status, "result": "later" if status else "success"}


def _decider(text: str | None, seconds: float) -> ForMessage | None:
    """Return what runs a command, if there is one, for a message of a proxy."""
    if text is None:
        return None
    command = command_of(text)

    def decide(found: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
        body = base64.b64decode(found["body_base64"]) if "body_base64" in found else found["body"].encode("utf-8")
        own = {**found, "msg_id": found["unique_key"], "keys": " ".join(found["keys"])}
        row = run_for_message(command, body, own, seconds)
        return row["exit_status"] == 0, row

    return decide


# Messages of a push consumer for a command: printed one by one, or handed to a command that decides on them.

_LOOK_SECONDS = 0.1
DROPPABLE_RESULT_COLUMNS = ("reconsume_times", "unique_key")


class PrintedMessages:
    """A callback whose messages are consumed once the next ones are asked for; those that are not are for `later`."""

    def __init__(self, success: object, later: object) -> None:
        self._verdicts = (later, success)
        self._is_over = False
        self._given: queue.SimpleQueue[tuple[list[StoredMessage], threading.Event]] = queue.SimpleQueue()

    def consume(self, messages: Sequence[StoredMessage], context: object) -> Any:
        """Hand messages to the one who prints, and wait for that."""
        printed = threading.Event()
        self._given.put((list(messages), printed))
        while not printed.wait(_LOOK_SECONDS) and not self._is_over:
            pass
        return self._verdicts[printed.is_set()]

    def batches(self, consumer: PushConsumer, *, to_the_end: bool) -> Generator[list[StoredMessage], None, None]:
        """Yield the messages of a consumer, which is started and closed; those that are not printed are not
        consumed."""
        with consumer:
            try:
                while not consumer.has_ended(to_the_end=to_the_end):
                    try:
                        messages, printed = self._given.get(timeout=_LOOK_SECONDS)
                    except queue.Empty:
                        continue
                    yield messages
                    printed.set()
            finally:
                consumer.abandon()
                self._is_over = True


class CommandResults:
    """A callback that runs a command for each message: exit status 0 is `success`, any other `later`."""

    def __init__(self, command: Sequence[str], seconds: float, success: object, later: object) -> None:
        self._command = command
        self._seconds = seconds
        self._verdicts = (later, success)
        self._rows: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def consume(self, messages: Sequence[StoredMessage], context: object) -> Any:
        """Run the command. One that cannot run is a failure, reported by the consumer."""
        (message,) = messages
        row = run_for_message(self._command, message.plain_body(), _described(message), self._seconds)
        self._rows.put(row)
        return self._verdicts[row["exit_status"] == 0]

    def batches(self, consumer: PushConsumer, *, to_the_end: bool) -> Generator[list[dict[str, Any]], None, None]:
        """Yield a row for each message of a consumer, which is started and closed."""
        with consumer:
            while not consumer.has_ended(to_the_end=to_the_end) or not self._rows.empty():
                with contextlib.suppress(queue.Empty):
                    yield [self._rows.get(timeout=_LOOK_SECONDS)]
        while not self._rows.empty():
            yield [self._rows.get()]
