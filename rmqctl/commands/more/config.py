"""`rmqctl config`: what config.toml and the environment say, and where each value comes from."""

from __future__ import annotations

import click

from rmqctl.flags.options import output_options
from rmqctl.main import cli, every_action
from rmqctl.opening import config_file
from rmqctl.output import outcome as exit_codes
from rmqctl.output.output import Output

_COLUMNS = ("verb", "option", "value", "source")


@click.command(
    epilog="""\b
Examples:
  rmqctl config show
  rmqctl --profile prod config show
  rmqctl config --json

\b
~/.config/rmqctl/config.toml, else $RMQCTL_CONFIG:
  profile = "prod"
  [defaults]
  tz = "Asia/Shanghai"
  [profiles.prod]
  store = "/data/rocketmq/store"
  namesrv = "10.0.0.1:9876"
  [profiles.prod.check]
  full = true

The command line and variables come first: a store
named there goes without the broker.conf of the file.
Exit code 0: printed. 1: nothing is set. 2: the file cannot be used."""
)
@click.argument("action", required=False, type=click.Choice(["show"]), metavar="[show]")
@output_options
@click.pass_context
def config(context: click.Context, action: str | None, output: Output) -> int:
    """Show default options and their sources."""
    from rmqctl.profiles import rows

    defaults = context.find_root().obj
    commands = every_action(cli)
    if defaults is not None:
        defaults.check(commands)
    found = output.rows(_COLUMNS, rows(defaults, commands))
    if not found:
        file = config_file()
        there_is_no = f"there is no {file}" if file else "$RMQCTL_CONFIG is empty"
        output.talk(f"nothing is set: {there_is_no}" if defaults is None else f"{defaults.path} sets nothing")
    return exit_codes.OK if found else exit_codes.DAMAGE_OR_NOTHING
