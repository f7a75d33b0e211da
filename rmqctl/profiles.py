"""config.toml: the stores and name servers that one works with, by name, and flags that are always given.

    profile = "prod"                         # taken where neither --profile nor $RMQCTL_PROFILE names one

    [defaults]                               # long options without their dashes, for every verb that has them
    tz = "Asia/Shanghai"

    [profiles.prod]                          # the same, over those of [defaults]
    store = "/data/rocketmq/store"
    namesrv = "10.0.0.1:9876;10.0.0.2:9876"  # for the verbs that need one

    [profiles.prod.check]                    # for one verb; its actions in quotes: [profiles.prod."offsets set"]
    full = true

The command line and environment variables come first. `yes` stays a decision of each command.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import click

from rmqctl.formats.errors import UsageError

PROFILE_VARIABLE = "RMQCTL_PROFILE"
_NEVER = ("yes", "help", "profile", "version")
"""Options that a file may not give: consent, and what ends the command."""
_LARGEST = 64 << 10


class FileDefault(NamedTuple):
    """A default for `option`, and the table of the file that gives it."""

    option: str
    value: Any
    table: str


@dataclass(frozen=True)
class FileDefaults:
    """What the file at `path` says for the profile that is in force, if any: tables by their names, weakest first."""

    path: Path
    tables: Mapping[str, Mapping[str, Any]]

    def of(self, command: click.Command, verb: str) -> dict[str, FileDefault]:
        """Defaults of the command's parameters, by the parameter. `verb`: its name, with the action behind a space.

        Raises UsageError for an option that `verb` has not, where a table is for it alone, and for one of _NEVER.
        """
        options = {_key(option): option for option in command.params if isinstance(option, click.Option)}
        found: dict[str, FileDefault] = {}
        for table, values in self.tables.items():
            below = values.get(verb)
            for name, value in values.items():
                if not isinstance(value, dict):
                    self._refuse_never(table, name)
                    # a verb that asks a store unless name servers are named goes on doing so
                    is_asked = name in options and (name != "namesrv" or options[name].required)
                    if is_asked:
                        found |= self._given(options[name], value, table)
            for name, value in (below if isinstance(below, dict) else {}).items():
                own = f"{table}.{verb}"
                self._refuse_never(own, name)
                if name not in options:
                    raise self.error(own, f"`{verb}` has no option '{name}'", name, options)
                found |= self._given(options[name], value, own)
        return found

    def check(self, commands: Mapping[str, click.Command]) -> None:
        """Raise UsageError for a name that no verb has, or no option of any."""
        every = {_key(one) for command in commands.values() for one in command.params if isinstance(one, click.Option)}
        for table, values in self.tables.items():
            for name, value in values.items():
                if isinstance(value, dict) and name not in commands:
                    raise self.error(table, f"there is no verb '{name}'", name, commands)
                if not isinstance(value, dict) and name not in every:
                    raise self.error(table, f"no verb has an option '{name}'", name, every)
        for verb, command in commands.items():
            self.of(command, verb)

    def error(self, table: str, message: str, name: str = "", known: Collection[str] = ()) -> UsageError:
        """What to say of a table of the file, with the nearest known name."""
        nearest = get_close_matches(name, known, n=1)
        hint = f"did you mean '{nearest[0]}'?" if nearest else "`rmqctl help VERB` lists options"
        return UsageError(f"[{table}]: {message}", file=self.path, hint=hint)

    def _given(self, option: click.Option, value: Any, table: str) -> dict[str, FileDefault]:
        """The default by the parameter's name; a flag such as `full` gives its value."""
        key = _key(option)
        try:
            given = _as_given(option, value)
        except ValueError as wanted:
            raise UsageError(f"[{table}]: '{key}' must be {wanted}", file=self.path) from None
        if option.is_flag and not option.is_bool_flag:
            return {str(option.name): FileDefault(key, option.flag_value, table)} if given else {}
        return {str(option.name): FileDefault(key, given, table)}

    def _refuse_never(self, table: str, name: str) -> None:
        if name in _NEVER:
            raise UsageError(f"[{table}]: '{name}' is given on the command line only", file=self.path)


def read_defaults(path: Path, profile: str | None) -> FileDefaults:
    """Read config.toml; `profile` over what the file names. Raises UsageError where it cannot be used."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise ValueError(f"more than {_LARGEST} bytes")
        given = tomllib.loads(content.decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"it cannot be read: {error}", file=path, hint="RMQCTL_CONFIG= goes without it") from error
    asked = profile or os.environ.get(PROFILE_VARIABLE) or given.get("profile")
    profiles, general = given.get("profiles", {}), given.get("defaults", {})
    here = FileDefaults(path, {})
    for name in given.keys() - {"profile", "profiles", "defaults"}:
        raise here.error(name, "there is no such table", name, ("profile", "profiles", "defaults"))
    for table, one in (("profiles", profiles), ("defaults", general)):
        if not isinstance(one, dict):
            raise here.error(table, "it is no table")
    tables = {"defaults": general}
    if asked is not None:
        if not isinstance(asked, str) or not isinstance(profiles.get(asked), dict):
            there_are = ", ".join(sorted(profiles)) or "none"
            raise UsageError(f"there is no profile '{asked}'", file=path, hint=f"profiles: {there_are}")
        tables[f"profiles.{asked}"] = profiles[asked]
    return FileDefaults(path, tables)


def rows(defaults: FileDefaults | None, commands: Mapping[str, click.Command]) -> Iterator[dict[str, Any]]:
    """What is in force of the file and of environment variables: verb (None: every one that has the option), option,
    value, and where it comes from."""
    seen: set[tuple[str, str]] = set()
    for verb, command in commands.items():
        given = {} if defaults is None else defaults.of(command, verb)
        for option in command.params:
            variable = option.envvar if isinstance(option, click.Option) and isinstance(option.envvar, str) else None
            if variable and os.environ.get(variable):
                given[str(option.name)] = FileDefault(_key(option), os.environ[variable], f"${variable}")
        for one in given.values():
            is_variable = one.table.startswith("$")
            own = None if is_variable or (defaults is not None and one.table in defaults.tables) else verb
            if (own or "", one.option) not in seen:
                seen.add((own or "", one.option))
                source = one.table if is_variable else f"{defaults and defaults.path} [{one.table}]"
                yield {"verb": own, "option": one.option, "value": one.value, "source": source}


def _as_given(option: click.Option, value: Any) -> Any:
    """Return the value of an option as a command line would give it; raises ValueError with what it must be."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise ValueError("true or false")
        return value
    if option.multiple or option.nargs != 1:
        return [_text(one) for one in (value if isinstance(value, list) else [value])]
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool | list | dict):
        raise ValueError("text or a number")
    return value.isoformat() if isinstance(value, date | datetime | time) else str(value)


def _key(option: click.Parameter) -> str:
    """An option's long name without its dashes."""
    return max(option.opts, key=len).lstrip("-")
