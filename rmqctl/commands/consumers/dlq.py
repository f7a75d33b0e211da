"""`rmqctl dlq`: list and redrive dead-letter messages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from rmqctl.flags.options import (
    StoreLocation,
    as_recovered_option,
    dry_run_option,
    group_option,
    key_option,
    limit_option,
    output_options,
    store_options,
    time_options,
    topic_option,
    yes_option,
)
from rmqctl.flags.types import OFFSET
from rmqctl.formats.errors import NotFoundError, StoreInUseError, UsageError, counted
from rmqctl.main import Verb, VerbGroup
from rmqctl.output import outcome as exit_codes
from rmqctl.output.outcome import agrees, require_agreed_file
from rmqctl.output.output import note_done
from rmqctl.store.options import Events

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.answers.dead_letters import DeadChoice, Redrive
    from rmqctl.store.write.put import PutResult

_COLUMNS = (
    "group",
    "queue_offset",
    "state",
    "origin_topic",
    "origin_id",
    "attempts",
    "last_attempt_timestamp",
    "keys",
    "unique_key",
    "detail",
)
_DROPPABLE = ("detail", "unique_key", "keys", "state")


@click.command(
    "list",
    epilog="""\b
Examples:
  rmqctl dlq list -s DIR
  rmqctl dlq list -s DIR -g orders-consumer -t Orders
  rmqctl dlq list -s DIR --json | jq -r .origin_id | xargs -n 1 rmqctl query -s DIR -i

Exit code 1: no dead letter matched, or damage beside the answer; 7: damage may hide it.""",
)
@store_options
@as_recovered_option
@group_option
@topic_option.but(help="Only messages that came from this topic.")
@output_options
def list_letters(store: StoreLocation, output: Output, group: str | None, topic: str | None) -> int:
    """List dead-letter messages (topics %DLQ%GROUP).

    Each has the topic and id of the original message, the number of attempts and the time of the last one.
    """
    from rmqctl.opening import open_store
    from rmqctl.output.outcome import tell_answer

    with open_store(store) as opened:
        otherwise = NotFoundError("no dead letter matched" if group or topic else "no group has given up a message")
        return tell_answer(
            output, _COLUMNS, lambda events: opened.dead_letters(group, topic, events=events), otherwise, _DROPPABLE
        )


dlq = VerbGroup(
    "dlq",
    verbs={
        "list": Verb("rmqctl.commands.consumers.dlq:list_letters", "look", "What was given up, and what it was first."),
        "redrive": Verb("rmqctl.commands.consumers.dlq:redrive", "change", "Give it to its group once more."),
    },
    subcommand_metavar="ACTION [ARGS]...",
    help="Dead-letter messages (topics %DLQ%GROUP).",
)


# `rmqctl dlq redrive`: dead letters for their group once more, into the store or as lines for a producer.

_DLQ_REDRIVE_COLUMNS = (
    "queue_offset",
    "state",
    "topic",
    "queue_id",
    "stored_offset",
    "earlier_offset",
    "keys",
    "unique_key",
    "detail",
)
_DLQ_REDRIVE_DROPPABLE = ("detail", "unique_key", "keys", "earlier_offset", "queue_id")
_TOLD = {
    "redriven": "redriven before: left out (--again takes them all the same)",
    "unplaced": "without the topic that they came from: left out",
    "damaged": "damaged: left out",
}


@click.command(
    "redrive",
    epilog="""\b
Examples:
  rmqctl dlq redrive -s DIR -g orders --dry-run
  rmqctl dlq redrive -s DIR -g orders -b '1d ago' -n 100 --yes
  rmqctl dlq redrive -s DIR -g orders -o - | rmqctl produce -n 127.0.0.1:9876 --from -
  rmqctl dlq redrive -s DIR -g orders --into origin -o again.jsonl

\b
States:
  ready      it is stored (dry run: would be stored), or its line is written
  redriven   it was redriven before, as the message at physical offset `earlier_offset`
  unplaced   --into origin, and its original topic is unknown
  damaged    it cannot be read

A redriven message carries the id of its dead letter (property RMQCTL_REDRIVEN).
A second redrive finds it by its unique key in this store's index: also if `produce`
sent it to this store's broker, but not if another broker got it or it has expired.

Exit code 1: no dead letter matched, or damage beside the answer; 7: damage may hide it.""",
)
@store_options
@group_option.but(required=True, help="The group of the dead letters.")
@time_options
@key_option.but(help="Only messages with this key or unique key.")
@click.option("--offset", type=OFFSET, metavar="OFFSET", help="From this offset of the %DLQ% queue on.")
@click.option("--to", "to_offset", type=OFFSET, metavar="OFFSET", help="Before this offset.")
@limit_option.but(help="At most N that are ready, the oldest first.")
@click.option(
    "--into",
    type=click.Choice(["retry", "origin"]),
    default="retry",
    show_default=True,
    help="The retry topic, for this group alone; or the topic they came from, for every group of it.",
)
@click.option("--again", is_flag=True, help="Include messages redriven before.")
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write JSON Lines that `append --from` and `produce --from` read, `-` for stdout; store nothing.",
)
@click.option("--overwrite", is_flag=True, help="Replace FILE if it is there.")
@dry_run_option
@yes_option
@output_options
def redrive(
    store: StoreLocation,
    output: Output,
    *,
    group: str,
    begin: int | None,
    end: int | None,
    key: str | None,
    offset: int | None,
    to_offset: int | None,
    limit: int | None,
    into: Literal["retry", "origin"],
    again: bool,
    target: Path | None,
    overwrite: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    """Redeliver a group's dead letters with a fresh set of retries.

    Messages go to the group's retry topic, or back to their original topic. They keep body, keys, tags, unique key
    and born time; properties added on the way to the DLQ (DELAY, REAL_TOPIC, RECONSUME_TIME …) are removed. They are
    appended to the store, with the broker stopped, or written as lines for a producer (-o). The dead letters stay.
    The command prints their number and prompts.
    """
    from rmqctl.opening import open_store, tell_if_open
    from rmqctl.output.outcome import ToldDamage
    from rmqctl.store.answers.dead_letters import DeadChoice

    if overwrite and target is None:
        raise UsageError("--overwrite goes with -o FILE")
    if target is not None and dry_run:
        raise UsageError("-o FILE stores nothing: leave out --dry-run")
    choice = DeadChoice(begin, end, key, offset or 0, to_offset, limit)
    damage = ToldDamage(output)
    with open_store(store) as opened:
        if target is not None:
            require_agreed_file(target, overwrite, yes)
        elif dry_run:
            tell_if_open(opened)
        found = list(opened.redrive(group, choice, into, again=again, events=Events(damage=damage)))
    if not found and not damage.count:
        raise NotFoundError("no dead letter matched", hint=f"`rmqctl dlq list -g {group}` lists them")
    results: list[PutResult] = []
    ready = [row for row in found if row.is_ready]
    if target is not None:
        _write(ready, target, overwrite)
    elif ready and not dry_run:
        if not agrees(_asked(ready), yes=yes):
            raise click.Abort
        found, results = _store(store, group, choice, into, again)
    if target is None:
        output.rows(_DLQ_REDRIVE_COLUMNS, _rows(found, results), droppable=_DLQ_REDRIVE_DROPPABLE)
    _tell(found, output, target, dry_run)
    return exit_codes.DAMAGE_OR_NOTHING if damage.count else exit_codes.OK


def _asked(ready: list[Redrive]) -> str:
    topics = sorted({str(row.topic) for row in ready})
    return f"stores {counted(len(ready), 'dead letter')} once more, in {', '.join(topics)}"


@contextlib.contextmanager
def _naming_live(group: str) -> Iterator[None]:
    """Where a broker has the store: what goes through it."""
    try:
        yield
    except StoreInUseError as error:
        lines = f"`rmqctl dlq redrive -g {group} -o - | rmqctl produce --from -` sends them through the broker"
        error.hint = "; ".join(filter(None, [error.hint, lines]))
        raise


def _store(
    location: StoreLocation, group: str, choice: DeadChoice, into: Literal["retry", "origin"], again: bool
) -> tuple[list[Redrive], list[PutResult]]:
    """Put what is ready under the store's lock, after reading it again. WriteFailedError for a store that takes no
    message any more: those before it are stored, and the next redrive leaves them out."""
    from rmqctl.opening import broker_config, listen, noting_stored
    from rmqctl.store.message_store import MessageStore

    listen()
    config = broker_config(location)
    with _naming_live(group), MessageStore.open(location.path, "rw", config, allocate_ahead=False) as opened:
        found = list(opened.redrive(group, choice, into, again=again, events=Events(damage=lambda error: None)))
        with noting_stored(opened, "dlq"):
            results = list(opened.put_many([row.message for row in found if row.message is not None]))
            opened.flush()
        for result in results:
            result.raise_failure()
        end = opened.files.log.max_offset
    what = counted(len(results), "message was stored", "messages were stored")
    note_done(f"{what}, up to physical offset {end}", stored=len(results), end_physical_offset=end)
    return found, results


def _rows(found: list[Redrive], results: list[PutResult]) -> list[dict[str, Any]]:
    stored = iter(results)
    rows = []
    for row in found:
        record = {name: value for name, value in row._asdict().items() if name not in ("message", "dead")}
        result = next(stored, None) if row.message is not None else None
        record["stored_offset"] = None if result is None else result.physical_offset
        rows.append(record)
    return rows


def _write(ready: list[Redrive], target: Path, overwrite: bool) -> None:
    from rmqctl.messages.input import redriven_line
    from rmqctl.store.files.outputs import new_file

    with new_file(target, overwrite) as file:
        for row in ready:
            if row.dead is not None and row.message is not None:
                file.write(redriven_line(row.dead, row.message))


def _tell(found: list[Redrive], output: Output, target: Path | None, dry_run: bool) -> None:
    ready = sum(row.is_ready for row in found)
    verb = "would be stored" if dry_run else "stored" if target is None else "written"
    output.talk(f"{counted(ready, 'message')} {verb} of {counted(len(found), 'dead letter')}")
    for state, said in _TOLD.items():
        count = sum(row.state == state for row in found)
        if count:
            output.talk(f"{count} {said}")
    unsure = sum(row.is_ready and "not known" in row.detail for row in found)
    if unsure:
        output.talk(f"of {unsure} it is not known whether they were redriven before: see `detail`")
