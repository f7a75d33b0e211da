"""`rmqctl config`: what config.toml and the environment say, and what the keys of a broker.conf do."""

from __future__ import annotations

from pathlib import Path

import click

from rmqctl.flags.options import config_option, output_options
from rmqctl.main import cli, every_action
from rmqctl.opening import config_file
from rmqctl.output import outcome as exit_codes
from rmqctl.output.output import Output

_COLUMNS = ("verb", "option", "value", "source")
_KEY_COLUMNS = ("key", "value", "default", "releases", "counts_for", "effect")


@click.command(
    epilog="""\b
Examples:
  rmqctl config show
  rmqctl --profile prod config show
  rmqctl config keys -c broker.conf
  rmqctl config keys 'flush*' --json

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
Exit code 0: printed. 1: nothing is set, no key fits. 2: the file cannot be used."""
)
@click.argument("action", required=False, type=click.Choice(["show", "keys"]), metavar="[show|keys]")
@click.argument("patterns", nargs=-1, metavar="[KEY]...")
@config_option.but(help="With keys: those of this broker.conf, and their values.")
@output_options
@click.pass_context
def config(
    context: click.Context, action: str | None, patterns: tuple[str, ...], config_path: Path | None, output: Output
) -> int:
    """Show default options and their sources, or what keys of a broker.conf do here."""
    if action == "keys":
        return _keys(patterns, config_path, output)
    if patterns or config_path is not None:
        raise click.UsageError("KEY and -c go with `config keys`")
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


def _keys(patterns: tuple[str, ...], config_path: Path | None, output: Output) -> int:
    """List what keys of a broker.conf do here: all keys, those of a file, those that fit one of `patterns`."""
    from fnmatch import fnmatch

    from rmqctl.network.broker.config_keys import broker_keys
    from rmqctl.network.broker.settings import settings_from_properties
    from rmqctl.reports.changes import tell_unknown_settings
    from rmqctl.store.config.config import odd_settings, read_properties

    properties = None if config_path is None else read_properties(config_path)
    rows: list[dict[str, object]] = []
    for one in broker_keys():
        is_asked = not patterns or any(fnmatch(one.key.lower(), pattern.lower()) for pattern in patterns)
        if is_asked and (properties is None or one.key in properties):
            value = {} if properties is None else {"value": properties[one.key]}
            rows.append({"key": one.key, **value, **one._asdict()})
    columns = [name for name in _KEY_COLUMNS if name != "value" or properties is not None]
    found = output.rows(columns, rows, droppable=("releases", "default"))
    if not found and patterns:
        output.talk(f"no key of a broker.conf fits {' '.join(patterns)}")
    tell_unknown_settings(output, config_path)
    sentences = odd_settings(properties or {})
    settings_from_properties(properties or {}, sentences.append)
    for sentence in sentences:
        output.talk(f"{config_path}: {sentence}")
    return exit_codes.OK if found else exit_codes.DAMAGE_OR_NOTHING
