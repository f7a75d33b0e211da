"""Keys of brokers and name servers with RocketMQ's defaults, by version (config_defaults.ini)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from configparser import RawConfigParser
from functools import cache
from pathlib import Path

from rmqctl.store.config.releases import Release


@cache
def _sections() -> RawConfigParser:
    found = RawConfigParser(delimiters=("=",))
    found.optionxform = str  # type: ignore[assignment,method-assign]  # keys as they are
    found.read_string(Path(__file__).with_suffix(".ini").read_text(encoding="utf-8"))
    return found


def _section(name: str) -> dict[str, str]:
    return dict(_sections()[name])


@cache
def broker_defaults(release: Release) -> Mapping[str, str]:
    """Return the keys that a broker of a version has, with their defaults."""
    if not release.message_types:
        return _section("all brokers") | _section("brokers of 4.x")
    newest = _section("brokers since 5.4") if release.has_tag_queries else {}
    return _section("all brokers") | _section("brokers since 5.0") | newest


@cache
def conf_defaults(release: Release) -> Mapping[str, str]:
    """Return the keys that a broker.conf of a version can have, with their defaults. Brokers of 5.x read those of
    authentication too, and do not name them among their own."""
    more = _section("broker.conf since 5.0") if release.message_types else {}
    return {**broker_defaults(release), **more}


@cache
def name_server_defaults(release: Release) -> Mapping[str, str]:
    """Return the keys that a name server of a version has, with their defaults."""
    newer = _section("name servers since 5.0") if release.message_types else {}
    return _section("name servers of 4.x") | newer


def rocketmq_home() -> str:
    """Return the folder that servers take for the one of RocketMQ's installation."""
    return os.environ.get("ROCKETMQ_HOME") or os.path.expanduser("~")


def name_server_paths() -> dict[str, str]:
    """Return where a name server that has no other folder keeps its files (NamesrvConfig), by key."""
    folder = os.path.join(os.path.expanduser("~"), "namesrv")
    return {
        "rocketmqHome": rocketmq_home(),
        "kvConfigPath": os.path.join(folder, "kvConfig.json"),
        "configStorePath": os.path.join(folder, "namesrv.properties"),
    }
