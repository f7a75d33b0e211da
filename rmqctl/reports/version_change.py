"""Print what another version of RocketMQ does otherwise with a store and its broker.conf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.formats.wording import counted
from rmqctl.network.config_defaults import conf_defaults
from rmqctl.store.config.versions import RELEASES

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.predict.compatibility import VersionDifference

_COLUMNS = ("effect", "part", "detail")
_SETTINGS = ("setting", "value", "before", "after", "detail")


class SettingChange(NamedTuple):
    """A setting that counts otherwise. `value`: in broker.conf; `before` and `after`: the defaults of both versions,
    None where a version does not know the setting."""

    setting: str
    value: str | None
    before: str | None
    after: str | None
    detail: str


def setting_changes(properties: Mapping[str, str], before: str, after: str) -> list[SettingChange]:
    """Return the settings of `properties` that `after` does not know, and other defaults of settings left out."""
    old, new = conf_defaults(RELEASES[before]), conf_defaults(RELEASES[after])
    known = {name for release in RELEASES.values() for name in conf_defaults(release)}
    rows = [
        SettingChange(name, value, old.get(name), None, f"{after} ignores it")
        for name, value in sorted(properties.items())
        if name in known and name not in new
    ]
    rows += [
        SettingChange(name, None, old[name], new[name], "another default")
        for name in sorted(old.keys() & new.keys())
        if old[name] != new[name] and name not in properties
    ]
    return rows


def print_version_change(
    output: Output, before: str, after: str, found: list[VersionDifference], settings: list[SettingChange]
) -> None:
    """Print both lists under a sentence that says whether anything is missed."""
    harmful = sum(one.is_harmful for one in found)
    rows = [one._asdict() for one in found]
    if output.is_json:
        record: dict[str, Any] = {"version": after, "from": before, "harmful": harmful, "differences": rows}
        output.record(record | {"settings": [one._asdict() for one in settings]})
        return
    if output.format != "table":
        output.rows(_COLUMNS, rows)
        return
    if harmful:
        output.text(f"RocketMQ {after} misses or refuses {counted(harmful, 'thing')} that this store holds.")
    else:
        output.text(f"RocketMQ {after} reads all that this store holds, as far as its files show.")
    if rows:
        output.text("")
        output.rows(_COLUMNS, rows)
    if settings:
        output.heading(f"Settings from {before} to {after}:")
        output.rows(_SETTINGS, [one._asdict() for one in settings], droppable=("detail",))
