"""`rmqctl help`: what `--help` says, for who asks the other way round; and the same as manual pages."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import ShellComplete, get_completion_class

from rmqctl.formats.errors import counted
from rmqctl.main import COMPLETION_VARIABLE, PROGRAM, cli, no_such_verb
from rmqctl.output import outcome as exit_codes
from rmqctl.output.table import said

_CODES = "RMQ-"


@click.command(
    epilog="""\b
Examples:
  rmqctl help cat
  rmqctl help RMQ-CQ-001
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
    """Explain a verb or a finding code."""
    if folder is not None:
        if verb is not None:
            raise click.UsageError("--man writes the pages of all verbs: leave out the verb")
        from rmqctl.documents.manual import write_manual

        click.echo(said(f"{counted(write_manual(folder), 'manual page')} in {folder}"), err=True)
        return exit_codes.OK
    parent = context.parent or click.Context(cli, info_name=PROGRAM)
    if verb is None:
        click.echo(parent.get_help())
        return exit_codes.OK
    command = cli.get_command(parent, verb)
    if command is None and verb.upper().startswith(_CODES):
        from rmqctl.commands.look.check import explain_code
        from rmqctl.output.output import Output

        return explain_code(verb, Output())
    if command is None:
        raise no_such_verb(verb, cli.verbs, context)
    with click.Context(command, info_name=verb, parent=parent) as found:
        click.echo(command.get_help(found))
    return exit_codes.OK


# `rmqctl completion`: the script that teaches a shell to complete rmqctl's verbs and flags.

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
      bash   eval "$(rmqctl completion bash)"       in ~/.bashrc
      zsh    eval "$(rmqctl completion zsh)"        in ~/.zshrc, after compinit
      fish   rmqctl completion fish > ~/.config/fish/completions/rmqctl.fish
    """
    click.echo(script(shell), nl=False)


def script(shell: str) -> str:
    """The script, made by click's own machinery; the shell need not be installed here."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.BadParameter(f"click knows no shell {shell}")
    # BashComplete.source would first start bash to ask for its version
    return ShellComplete.source(kind(cli, {}, PROGRAM, COMPLETION_VARIABLE))
