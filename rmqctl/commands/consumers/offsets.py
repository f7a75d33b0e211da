"""`rmqctl offsets`: what config/ says of the groups' offsets, what is wrong with it, and the verbs that change it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.flags.options import StoreLocation, group_option, output_options, queue_option, store_options, topic_option
from rmqctl.main import Verb, VerbGroup
from rmqctl.output import outcome as exit_codes
from rmqctl.store.options import Events

if TYPE_CHECKING:
    from rmqctl.output.output import Output

_SHOWN = ("kind", "group", "topic", "queue_id", "offset", "backup_offset", "min_offset", "max_offset", "detail")
_SHOWN_DROPPABLE = ("kind", "min_offset", "detail")
_PROBLEMS = ("weight", "problem", "file", "group", "topic", "queue_id", "found", "expected", "detail")
_PROBLEMS_DROPPABLE = ("expected", "found", "queue_id")
_CHANGES = "rmqctl.commands.consumers.offsets_change"
_VERBS = {
    "show": Verb("rmqctl.commands.consumers.offsets:show", "look", "What is kept, beside its backup."),
    "lint": Verb("rmqctl.commands.consumers.offsets:lint", "look", "What is wrong with what is kept."),
    "set": Verb(f"{_CHANGES}:set_one", "change", "One queue of a group to an offset."),
    "set-delay": Verb(f"{_CHANGES}:set_delay", "change", "A delay level to an offset."),
    "reset": Verb(f"{_CHANGES}:reset", "change", "A group to a time, an offset or an end."),
    "copy": Verb(f"{_CHANGES}:copy", "change", "The offsets of a group for another one."),
    "delete": Verb(f"{_CHANGES}:delete", "change", "Remove the offsets of a group, or of orphans."),
    "salvage-client": Verb(
        "rmqctl.commands.consumers.offsets_change:salvage_client", "change", "A client's damaged offsets.json."
    ),
    "merge": Verb(f"{_CHANGES}:merge", "change", "Offsets of another consumerOffset.json."),
}


@click.command("show")
@store_options
@group_option
@topic_option
@queue_option
@output_options
def show(store: StoreLocation, output: Output, group: str | None, topic: str | None, queue_id: int | None) -> int:
    """Show consumerOffset.json and delayOffset.json with their backups.

    `offset` is the next message to be consumed; of a delay level the next one to be delivered. `rmqctl groups` shows
    the lag.
    """
    from rmqctl.formats.errors import NotFoundError
    from rmqctl.opening import open_store
    from rmqctl.output.outcome import tell_answer

    with open_store(store) as opened:
        is_all = group is None and topic is None and queue_id is None
        config = opened.files.layout.config
        return tell_answer(
            output,
            _SHOWN,
            lambda events: opened.offsets(group, topic, queue_id, events=events),
            NotFoundError("no offset is kept" if is_all else "no offset matched", hint=f"they are kept in {config}"),
            _SHOWN_DROPPABLE,
        )


@click.command(
    "lint",
    epilog="""\b
Problems:
  damaged, missing     the whole file; `detail` says what a broker does
  in-rocksdb           a RocksDB holds the offsets, and is not read yet
  data-version         dataVersion, which a returning master compares
  malformed-key, malformed-entry, malformed-offset, queue-twice, negative
  unknown-topic, unknown-queue, unknown-group, unknown-level
  retry-without-group, retry-of-another
  before-beginning, past-end
  backup-differs       the backup, which is older, is further

Exit code 1: there are errors or warnings. Notices need no action.""",
)
@store_options
@output_options
def lint(store: StoreLocation, output: Output) -> int:
    """Check the offset files: consumer offsets, delay offsets and their backups."""
    from rmqctl.opening import open_store

    worst, damage = exit_codes.OK, exit_codes.ToldDamage(output)
    with open_store(store) as opened:
        rows, root = [], opened.files.root

        @cache  # few files, and a problem for each of many offsets
        def place(path: Path) -> str:
            return str(path.relative_to(root) if path.is_relative_to(root) else path)

        for problem in opened.lint_offsets(events=Events(damage=damage, note=output.talk)):
            if problem.weight != "notice":
                worst = exit_codes.DAMAGE_OR_NOTHING
            rows.append({**problem._asdict(), "file": place(problem.file)})
    count = output.rows(_PROBLEMS, rows, droppable=_PROBLEMS_DROPPABLE)
    if damage.count or damage.is_uncertain:
        worst = exit_codes.DAMAGE_OR_NOTHING
    elif not count:
        output.talk("nothing is wrong with the offsets")
    return worst


offsets = VerbGroup(
    "offsets",
    verbs=_VERBS,
    subcommand_metavar="ACTION [ARGS]...",
    help="Show committed offsets, and change them with the broker stopped.\n\n"
    "Every change has --dry-run, and `rmqctl undo` restores the old files byte for byte.",
    epilog="""\b
Examples:
  rmqctl offsets show -s DIR -g GROUP
  rmqctl offsets reset -s DIR -g GROUP -t TOPIC --to '2h ago' --dry-run
  rmqctl offsets set-delay -s DIR --level 3 -o 71
  rmqctl offsets merge -s DIR /backup/config/consumerOffset.json --take larger

Stop the clients of a group, or restart them, before the broker starts again: they
commit the offsets that they remember over those that are set here.""",
)
