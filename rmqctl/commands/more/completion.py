"""`rmqctl completion`: the script that teaches a shell to complete rmqctl's verbs and flags."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class

from rmqctl.main import COMPLETION_VARIABLE, PROGRAM, cli

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
