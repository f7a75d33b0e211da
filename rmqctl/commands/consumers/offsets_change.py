"""`rmqctl offsets set | set-delay | reset | copy | merge | delete`: changes of the groups' offsets."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rmqctl.flags.options import (
    UNREAD,
    StoreLocation,
    change_options,
    group_option,
    journal_option,
    offset_option,
    output_options,
    queue_option,
    store_options,
    topic_option,
    zone_option,
)
from rmqctl.flags.types import COUNT, PLACE
from rmqctl.formats.errors import StoreInUseError, counted
from rmqctl.output import outcome as exit_codes
from rmqctl.output.output import note_change, note_done

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.message_store import MessageStore
    from rmqctl.store.offsets.change import OffsetsReport, Preference, ResetTo
    from rmqctl.store.options import ChangeOptions

_COLUMNS = ("group", "topic", "queue_id", "before", "after", "skipped", "again", "max_offset", "detail")
_DROPPABLE = ("detail", "max_offset")


class _Words(NamedTuple):
    """What happens to messages that are passed over and to those before the old offset; what to do afterwards."""

    skipped: str
    again: str
    advice: str | None


_OF_GROUPS = _Words(
    "passed over unread",
    "consumed again",
    "clients of the group that still run commit what they remember: stop or restart them as well",
)
_OF_LEVELS = _Words("never delivered", "delivered again", None)

new_group_option = click.option("--new-group", is_flag=True, help="Allow an unknown group.")


class _Change(NamedTuple):
    """A change of offsets: of which store, how, and where it is printed."""

    store: StoreLocation
    output: Output
    options: ChangeOptions

    def make(
        self,
        change: Callable[[MessageStore, ChangeOptions], OffsetsReport],
        live: str | None = None,
        words: _Words = _OF_GROUPS,
    ) -> int:
        """Make the change, and print it. `live`: what does the same where a broker has the store."""
        from rmqctl.opening import open_store, tell_if_open

        with _naming_live(live), open_store(self.store) as opened:
            if self.options.dry_run:
                tell_if_open(opened)
            report = change(opened, self.options)
        note_change(report, "the offsets were changed")
        _print(report, self.output, self.store, words)
        return exit_codes.OK


def _change_options(unread: str = UNREAD) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Add what every change of offsets takes; the command gets `change: _Change`."""

    def added(command: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(command)
        def changing(*args: Any, store: StoreLocation, output: Output, change: ChangeOptions, **options: Any) -> int:
            return command(*args, change=_Change(store, output, change), **options)

        return change_options(journal_option, unread=unread)(output_options(changing))

    return added


@click.command(
    "set",
    epilog="""\b
Example:
  rmqctl offsets set -s DIR -g orders -t Orders -q 3 -o 1200

\b
While the broker runs:
  mqadmin resetOffsetByTime -n NAMESRV -g GROUP -t TOPIC -b BROKER -q N -o OFFSET -s now""",
)
@store_options
@group_option.but(required=True, help="The consumer group.")
@topic_option.but(required=True, help="The topic.")
@queue_option.but(required=True, help="The queue.")
@offset_option.but(required=True, help="The next message that the group is to get.")
@click.option("--anywhere", is_flag=True, help="Allow an offset outside the queue, or a queue without files.")
@new_group_option
@_change_options()
def set_one(
    change: _Change, *, group: str, topic: str, queue_id: int, offset: int, anywhere: bool, new_group: bool
) -> int:
    """Set a group to an offset in one queue."""
    live = f"mqadmin resetOffsetByTime -g {group} -t {topic} -b BROKER -q {queue_id} -o {offset} -s now"

    def placed(opened: MessageStore, options: ChangeOptions) -> OffsetsReport:
        return opened.set_offset(group, topic, queue_id, offset, new_group=new_group, anywhere=anywhere, change=options)

    return change.make(placed, live)


@click.command(
    "set-delay",
    epilog="""\b
Examples:
  rmqctl delays -s DIR                                  offsets and ends of all levels
  rmqctl offsets set-delay -s DIR --level 3 -o 71 --dry-run
  rmqctl offsets set-delay -s DIR --level 3 -o 71

Stop the broker first: it writes config/delayOffset.json every 10 s.""",
)
@store_options
@click.option("--level", type=COUNT, required=True, metavar="N", help="The delay level, from 1.")
@offset_option.but(required=True, help="The next message that the broker delivers.")
@click.option("--anywhere", is_flag=True, help="Accept an offset outside of the queue, or an unknown level.")
@_change_options("that the broker has not delivered")
def set_delay(change: _Change, *, level: int, offset: int, anywhere: bool) -> int:
    """Set the offset of a delay level in config/delayOffset.json.

    The broker delivers the messages of the level from this offset on. A smaller offset delivers messages again; with a
    larger one messages are never delivered, and the command prompts. Level N is queue N - 1 of SCHEDULE_TOPIC_XXXX.
    """
    return change.make(
        lambda opened, options: opened.set_delay_offset(level, offset, anywhere=anywhere, change=options),
        words=_OF_LEVELS,
    )


@click.command(
    "reset",
    epilog="""\b
Examples:
  rmqctl offsets reset -s DIR -g orders -t Orders --to 2026-11-20T09:00 --dry-run
  rmqctl offsets reset -s DIR -g orders -t Orders --to '2h ago'
  rmqctl offsets reset -s DIR -g orders -t Orders --to latest --yes
  rmqctl offsets reset -s DIR -g orders -t Orders -q 3 --to 1200

\b
While the broker runs:
  mqadmin resetOffsetByTime -n NAMESRV -g GROUP -t TOPIC -s MS_SINCE_1970""",
)
@store_options
@group_option.but(required=True, help="The consumer group.")
@topic_option.but(required=True, help="The topic.")
@queue_option
@click.option(
    "--to",
    type=PLACE,
    required=True,
    metavar="TIME|OFFSET|earliest|latest",
    help="Where to: a time as -b of other verbs takes it, an offset, the first message that is left, or the end.",
)
@zone_option
@new_group_option
@_change_options()
def reset(change: _Change, *, group: str, topic: str, queue_id: int | None, to: ResetTo, new_group: bool) -> int:
    """Set a group in all queues of a topic, or in one, to a time, an offset, or either end.

    A time means the first message stored at or after it, as for `rmqctl query --at`. If the group skips unread
    messages, the command prints their number and prompts. The group's retry topic does not change.
    """
    return change.make(
        lambda opened, options: opened.reset_offsets(group, topic, to, queue_id, new_group=new_group, change=options),
        _live_reset(group, topic, to),
    )


@click.command(
    "copy",
    epilog="""\b
Example:
  rmqctl offsets copy -s DIR -g orders --to orders-blue --new-group

\b
While the broker runs:
  mqadmin cloneGroupOffset -n NAMESRV -s GROUP -d OTHER -t TOPIC""",
)
@store_options
@group_option.but(required=True, help="The group whose offsets are copied.")
@click.option("--to", "target", required=True, metavar="OTHER", help="The group that gets them.")
@topic_option
@new_group_option
@_change_options()
def copy(change: _Change, *, group: str, target: str, topic: str | None, new_group: bool) -> int:
    """Give a group the offsets of another one, in all of its topics or in one. Its retry topic is left out."""
    return change.make(
        lambda opened, options: opened.copy_offsets(group, target, topic, new_group=new_group, change=options),
        f"mqadmin cloneGroupOffset -s {group} -d {target} -t {topic or 'TOPIC'}",
    )


@click.command(
    "merge",
    epilog="""\b
Examples:
  rmqctl offsets merge -s DIR /backup/config/consumerOffset.json --take larger --dry-run
  rmqctl offsets merge -s DIR DIR/config/consumerOffset.json.bak --take replace -g orders""",
)
@store_options
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--take",
    "prefer",
    type=click.Choice(["larger", "smaller", "replace"]),
    help="Of offsets that differ: the larger, the smaller, or that of FILE. Needed where any differ.",
)
@group_option
@topic_option
@_change_options()
def merge(change: _Change, *, file: Path, prefer: Preference | None, group: str | None, topic: str | None) -> int:
    """Merge the offsets of FILE, another consumerOffset.json: missing ones, and differing ones by --take.

    Offsets that only this store has stay. The column `detail` shows both values of a conflict.
    """
    return change.make(lambda opened, options: opened.merge_offsets(file, prefer, group, topic, change=options))


@click.command(
    "delete",
    epilog="""\b
Examples:
  rmqctl offsets delete -s DIR -g orders --dry-run
  rmqctl offsets delete -s DIR -g orders -t WrongTopic
  rmqctl offsets delete -s DIR --orphans --dry-run

\b
While the broker runs:
  mqadmin deleteSubGroup -n NAMESRV -b BROKER -g GROUP -r true""",
)
@store_options
@group_option.but(help="The consumer group.")
@topic_option.but(help="Only its offsets in this topic.")
@queue_option.but(help="Only that of this queue; goes with -t.")
@click.option("--orphans", is_flag=True, help="Those of groups and topics that the configuration does not name.")
@_change_options()
def delete(change: _Change, *, group: str | None, topic: str | None, queue_id: int | None, orphans: bool) -> int:
    """Remove the offsets of a group, or those of all orphans.

    Afterwards the group begins where its clients choose (ConsumeFromWhere). Stop the clients first: they commit their
    offsets again. Orphans belong to a group that subscriptionGroup.json does not name, or to a topic that topics.json
    does not name and that has no queue. Offsets of broadcasting clients stay.
    """
    if orphans == (group is not None) or (orphans and topic is not None):
        raise click.UsageError("name one group with -g, or --orphans alone")
    if queue_id is not None and topic is None:
        raise click.UsageError("-q goes with -t")
    return change.make(
        lambda opened, options: opened.delete_offsets(group, topic, queue_id, change=options),
        f"mqadmin deleteSubGroup -b BROKER -g {group} -r true" if group is not None and topic is None else None,
    )


def _live_reset(group: str, topic: str, to: ResetTo) -> str:
    if to.kind == "latest":
        return f"mqadmin skipAccumulatedMessage -g {group} -t {topic}"
    if to.kind == "offset":
        return f"mqadmin resetOffsetByTime -g {group} -t {topic} -b BROKER -q QUEUE -o {to.value} -s now"
    return f"mqadmin resetOffsetByTime -g {group} -t {topic} -s {to.value}"


@contextlib.contextmanager
def _naming_live(live: str | None) -> Iterator[None]:
    """Where a broker has the store: what does the same through it."""
    try:
        yield
    except StoreInUseError as error:
        through = f"`{live}` does it through the broker" if live else "no command of mqadmin does it through the broker"
        error.hint = "; ".join(filter(None, [error.hint, through]))
        raise


def _print(report: OffsetsReport, output: Output, store: StoreLocation, words: _Words) -> None:
    from rmqctl.reports.changes import print_operations, undo_advice

    for note in report.notes:
        output.talk(f"note: {note}")
    rows = [{**row._asdict(), "group": row.group or None} for row in report.rows]
    if output.is_json:
        output.record({**{name: getattr(report, name) for name in report.__slots__}, "rows": rows})
        return
    shown = [row for row, change in zip(rows, report.rows, strict=True) if change.is_change or change.detail]
    output.rows(_COLUMNS, shown, droppable=_DROPPABLE)
    if report.dry_run:
        print_operations(report.operations, output)
    would = "would be" if report.dry_run else "is" if report.changed == 1 else "are"
    if not report.changed and not report.journal:
        if not shown:
            output.talk("nothing has to be changed: the offsets are so already")
        return
    said = [f"{counted(report.changed, 'offset')} {would} changed"] if report.changed else ["pops are ended"]
    if report.skipped:
        said.append(f"{counted(report.skipped, 'message')} {words.skipped}")
    if report.again:
        said.append(f"{counted(report.again, 'message')} {words.again}")
    output.talk(", ".join(said))
    if report.journal:
        output.talk(f"the former content is kept in {report.journal}; {undo_advice(store)} restores it")
        if words.advice is not None:
            output.talk(words.advice)


# `rmqctl groups pop-release | pop-finish`: what a group has by POP.

_POP_EXAMPLES = """\b
Example:
  rmqctl groups pop-{} -s DIR -g fifo -t Steps -q 0 --dry-run

Exit code 5: pops that are kept in kvStore/."""


@click.command("pop-release", epilog=_POP_EXAMPLES.format("release"))
@store_options
@group_option.but(required=True, help="The consumer group.")
@topic_option
@queue_option
@_change_options()
def pop_release(change: _Change, *, group: str, topic: str | None, queue_id: int | None) -> int:
    """Hand messages of POP out again: queues of ordered pops are unlocked, others come at the next start."""
    return change.make(lambda opened, options: opened.end_pops(group, topic, queue_id, change=options))


@click.command("pop-finish", epilog=_POP_EXAMPLES.format("finish"))
@store_options
@group_option.but(required=True, help="The consumer group.")
@topic_option
@queue_option
@_change_options()
def pop_finish(change: _Change, *, group: str, topic: str | None, queue_id: int | None) -> int:
    """Mark messages handed out by POP as consumed: an ordered pop unlocks its queue, and checkpoints of
    others get the bits of all their messages."""
    return change.make(lambda opened, options: opened.end_pops(group, topic, queue_id, finish=True, change=options))


# `rmqctl offsets salvage-client`: a sound offsets.json from the damaged one of a broadcasting client.

_OFFSETS_CLIENT_COLUMNS = ("topic", "broker_name", "queue_id", "offset", "source")


@click.command(
    "salvage-client",
    epilog="""\b
Example:
  rmqctl offsets salvage-client ~/.rocketmq_offsets/ID/GROUP/offsets.json --to /tmp/offsets.json
  mv /tmp/offsets.json ~/.rocketmq_offsets/ID/GROUP/offsets.json        with the client stopped

Exit code 1: nothing can be read. 5: the new file exists.""",
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--to", "target", type=click.Path(path_type=Path), required=True, metavar="NEW", help="The new file.")
@output_options
def salvage_client(output: Output, file: Path, target: Path) -> int:
    """Write a valid offsets.json of a broadcasting client to a new file.

    It has the readable offsets of FILE, and those of FILE.bak for all other queues. FILE and its backup stay
    unchanged. Stop the client before you put the new file in place: it writes its own every 5 s.
    """
    from rmqctl.store.config.client_offsets import mend_client_file

    done = mend_client_file(file, target)
    rows = [one._asdict() for one in done.offsets]
    note_done(f"{target} was written", path=str(target))
    if output.is_json:
        output.record(done._asdict() | {"offsets": rows})
        return exit_codes.OK
    output.rows(_OFFSETS_CLIENT_COLUMNS, rows)
    for path, damage in ((file.name, done.damage), (f"{file.name}.bak", done.backup_damage)):
        if damage is not None:
            output.talk(f"{path}: {damage}")
    output.talk(f"{counted(len(rows), 'offset')} written to {target}")
    return exit_codes.OK
