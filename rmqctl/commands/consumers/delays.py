"""`rmqctl delays`: delayed messages that wait for their time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rmqctl.flags.options import StoreLocation, as_recovered_option, output_options, plot_option, store_options
from rmqctl.output import outcome as exit_codes
from rmqctl.output.output import talk_paragraph
from rmqctl.store.options import Events

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from rmqctl.output.output import Output
    from rmqctl.store.answers.delays import DelayLevel

_COLUMNS = (
    "kind",
    "level",
    "delay_ms",
    "state",
    "offset",
    "max_offset",
    "pending",
    "first_due_timestamp",
    "target_topic",
    "target_queue_id",
    "detail",
)
_DROPPABLE = ("detail", "delay_ms", "offset")
_UNDELIVERED_COLUMNS = (
    "kind",
    "level",
    "queue_offset",
    "physical_offset",
    "state",
    "due_timestamp",
    "target_topic",
    "target_queue_id",
    "unique_key",
    "keys",
)
_DROPPABLE_UNDELIVERED = ("keys", "target_queue_id", "queue_offset", "unique_key")


_ELSEWHERE = "another broker may have the copies: with enableRemoteEscape a slave that acts as master delivers there"
_SEND_AGAIN = "`rmqctl query -o PHYSICAL_OFFSET` shows a message; send it again with `rmqctl produce` or `append`"


@click.command(
    epilog="""\b
Examples:
  rmqctl delays -s DIR
  rmqctl delays -s DIR -c broker.conf --json   a line for each level, with levels of your own
  rmqctl delays -s DIR --due                   each waiting message, in the order of delivery
  rmqctl delays -s DIR --undelivered           messages that were passed without being delivered

\b
States:
  delivered         nothing waits
  waiting           `pending` messages; the first is due at the time shown, for the topic and queue shown
  overdue           the same, but the first was due in the past; after a crash some may be delivered already
  stuck             the configuration has no such level: no broker delivers these
  not-delivered     in the timer: messages wait, and no broker delivers them; `detail` says why
  before-beginning  `pending` messages wait, and earlier ones expired undelivered
  past-end          the offset is larger than the queue's end: messages were lost
  damaged           the message that is due first cannot be read; in the timer, some that may wait
  unknown           the timer's progress is unknown; `detail` says what is missing

With --undelivered, `state` is not-delivered, or unknown where damage later in the log may hide the copy, or another
broker may have it (enableSlaveActingMaster and enableRemoteEscape in -c).

Exit code 1: no message was ever delayed, some are stuck or not delivered, or damage beside the answer; 7: damage may
hide it."""
)
@store_options
@as_recovered_option
@click.option(
    "--undelivered", is_flag=True, help="List passed messages of levels and of the timer without a copy in their topic."
)
@click.option("--due", is_flag=True, help="List each message that waits, in the order in which they are due.")
@plot_option.but(help="Draw pending messages as bars.")
@output_options
def delays(store: StoreLocation, output: Output, *, undelivered: bool, due: bool, is_plot: bool) -> int:
    """List pending delayed messages, by delay level and in the timer by target queue.

    Pending are messages from the offset in config/delayOffset.json on; a running broker writes it every 10 s. In the
    timer those are pending that a broker has on its wheel once it has recovered it from timerwheel, timerlog/ and
    config/timercheck, and those of its queue that it puts there then. `--json` counts both (`on_wheel`, `to_enqueue`).

    With --undelivered, the command lists delayed messages before the offset of their level, and messages of the timer
    that were due before the time in config/timercheck, that have no copy with the same unique key, birth time and
    retries in their topic. It reads the log from the first such message on. Broker defects, a broker that was down for
    a week, a deleted topic or delivery to another broker leave such messages. Recalled messages are not listed.
    """
    if undelivered and due:
        raise click.UsageError("--due lists messages that wait, --undelivered those that were passed")
    if is_plot:
        from rmqctl.output.plot import Plot

        if undelivered or due:
            raise click.UsageError("--plot draws pending messages by level: it goes without --due and --undelivered")
        output.draw(Plot("pending messages", "pending", _label))
    if undelivered:
        return _list_undelivered(store, output)
    if due:
        return _list_due(store, output)
    from rmqctl.formats.errors import NotFoundError
    from rmqctl.opening import open_store
    from rmqctl.output.outcome import tell_answer

    states: set[str] = set()
    with open_store(store) as opened:

        def ask(events: Events) -> Iterator[DelayLevel]:
            for row in opened.delays(events=events):
                states.add(row.state)
                yield row

        code = tell_answer(
            output,
            _COLUMNS,
            ask,
            NotFoundError("no message was ever delayed", hint="`rmqctl ls` lists the topics"),
            _DROPPABLE,
        )
    return exit_codes.DAMAGE_OR_NOTHING if _tell_never(states, output) else code


def _label(row: Mapping[str, Any]) -> str:
    """Name a level by its delay, a queue of the timer by its target: that of a level is the first message's only."""
    from rmqctl.output.plot import joined

    return joined(
        *("kind", "level", "delay_ms") if row["kind"] == "level" else ("kind", "target_topic", "target_queue_id")
    )(row)


def _tell_never(states: Iterable[str], output: Output) -> bool:
    """Say what to do about messages that no broker delivers; return whether there are any."""
    never = any(state in ("stuck", "not-delivered") for state in states)
    if never:
        talk_paragraph(output, f"no broker delivers what is stuck or not-delivered: {_SEND_AGAIN}")
    return never


def _list_due(store: StoreLocation, output: Output) -> int:
    """List the messages that wait; exit code 1 where none does, some are never delivered, or damage may hide some."""
    from rmqctl.opening import open_store
    from rmqctl.output.outcome import ToldDamage

    states: set[str] = set()
    with open_store(store) as opened:
        damage = ToldDamage(output)

        def waiting() -> Iterator[dict[str, Any]]:
            for row in opened.due(events=Events(damage=damage, note=output.talk)):
                states.add(row.state)
                yield row._asdict()

        count = output.rows(_UNDELIVERED_COLUMNS, waiting(), droppable=_DROPPABLE_UNDELIVERED)
    if not count and not damage.count and not damage.is_uncertain:
        output.talk("no message waits for its time")
    is_wrong = _tell_never(states, output) or not count or damage.count or damage.is_uncertain
    return exit_codes.DAMAGE_OR_NOTHING if is_wrong else exit_codes.OK


def _list_undelivered(store: StoreLocation, output: Output) -> int:
    """List messages that a level or the timer passed; exit code 1 where there are any."""
    from rmqctl.opening import log_bytes, open_store
    from rmqctl.output.outcome import ToldDamage
    from rmqctl.output.terminal import progress

    with open_store(store) as opened:
        damage = ToldDamage(output)
        with progress("reading the commitlog", log_bytes(opened.files), "bytes") as bar:
            rows = list(opened.undelivered(events=Events(progress=bar.advance, damage=damage, note=output.talk)))
        escapes = opened.files.config.escapes
    output.rows(_UNDELIVERED_COLUMNS, (row._asdict() for row in rows), droppable=_DROPPABLE_UNDELIVERED)
    if rows:
        talk_paragraph(output, _ELSEWHERE if escapes else _SEND_AGAIN)
    elif not damage.count and not damage.is_uncertain:
        output.talk("every delayed message that a level or the timer passed has a copy in its topic")
    return exit_codes.DAMAGE_OR_NOTHING if rows or damage.count or damage.is_uncertain else exit_codes.OK
