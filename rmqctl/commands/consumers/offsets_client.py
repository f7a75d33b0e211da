"""`rmqctl offsets salvage-client`: a sound offsets.json from the damaged one of a broadcasting client."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl import exit_codes
from rmqctl.flags.options import output_options
from rmqctl.formats.wording import counted
from rmqctl.output.done import note_done

if TYPE_CHECKING:
    from rmqctl.output.output import Output

_COLUMNS = ("topic", "broker_name", "queue_id", "offset", "source")


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
    """Write a sound offsets.json of a broadcasting client to a new file.

    It holds the offsets that can be read of FILE, and those of FILE.bak for all other queues. FILE and its backup stay
    as they are. Stop the client before you put the new file in place: it writes its own every 5 s.
    """
    from rmqctl.store.offsets.client_file import mend_client_file

    done = mend_client_file(file, target)
    rows = [one._asdict() for one in done.offsets]
    note_done(f"{target} was written", path=str(target))
    if output.is_json:
        output.record(done._asdict() | {"offsets": rows})
        return exit_codes.OK
    output.rows(_COLUMNS, rows)
    for path, damage in ((file.name, done.damage), (f"{file.name}.bak", done.backup_damage)):
        if damage is not None:
            output.talk(f"{path}: {damage}")
    output.talk(f"{counted(len(rows), 'offset')} written to {target}")
    return exit_codes.OK
