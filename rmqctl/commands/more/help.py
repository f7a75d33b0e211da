"""`rmqctl help`: what `--help` says, for who asks the other way round; and the same as manual pages."""

from __future__ import annotations

from pathlib import Path

import click

from rmqctl import exit_codes
from rmqctl.formats.wording import counted
from rmqctl.main import PROGRAM, cli, no_such_verb


@click.command(
    epilog="""\b
Examples:
  rmqctl help cat
  rmqctl help --man ~/.local/share/man/man1 && man rmqctl-cat"""
)
@click.argument("verb", required=False)
@click.option(
    "--man",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write manual pages into DIR, one for each verb: rmqctl.1, rmqctl-cat.1 and so on.",
)
@click.pass_context
def help(context: click.Context, verb: str | None, folder: Path | None) -> int:
    """Explain a verb, or list all of them."""
    if folder is not None:
        if verb is not None:
            raise click.UsageError("--man writes the pages of all verbs: leave out the verb")
        from rmqctl.documents.manual import write_manual

        click.echo(f"{counted(write_manual(folder), 'manual page')} in {folder}", err=True)
        return exit_codes.OK
    parent = context.parent or click.Context(cli, info_name=PROGRAM)
    if verb is None:
        click.echo(parent.get_help())
        return exit_codes.OK
    command = cli.get_command(parent, verb)
    if command is None:
        raise no_such_verb(verb, cli.verbs, context)
    with click.Context(command, info_name=verb, parent=parent) as found:
        click.echo(command.get_help(found))
    return exit_codes.OK
