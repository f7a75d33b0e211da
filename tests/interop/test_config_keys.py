"""The keys kept in tests/golden/servers are those of RocketMQ's own start-up, and our defaults are its own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rmqctl.network.config_defaults import broker_defaults, name_server_defaults
from rmqctl.store.config.releases import RELEASES
from tests.goldens import keys_of_servers
from tests.interop.harness import java_command
from tests.interop.toolchain import SOURCES, Unavailable, run, servers, toolchain

pytestmark = pytest.mark.interop

# of 4.9.8 there is no broker among the published artifacts, but all that has its keys
_BROKER_OF = {"4.9.8": "4.9.7"}
_CORES = 2


@pytest.mark.parametrize("version", RELEASES)
def test_keys_and_defaults_are_those_of_a_start(version: str, tmp_path: Path) -> None:
    try:
        tools = servers(_BROKER_OF.get(version, version))
        first = f"{toolchain(version).classpath}{os.pathsep}" if version in _BROKER_OF else ""
    except Unavailable as reason:
        pytest.skip(str(reason))
    (tmp_path / "conf").mkdir()
    for server in ("broker", "namesrv"):
        shutil.copyfile(SOURCES / "logback.xml", tmp_path / "conf" / f"logback_{server}.xml")
    broker, names = tmp_path / "broker.conf", tmp_path / "namesrv.conf"
    store = tmp_path / "store"
    given = {
        "brokerName": "broker-a",
        "namesrvAddr": "127.0.0.1:9876",
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        "mappedFileSizeCommitLog": "1048576",
    }
    broker.write_text("".join(f"{key}={value}\n" for key, value in given.items()), encoding="ascii")
    names.touch()
    *command, classpath = java_command(tools, tmp_path)
    done = run([*command, f"{first}{classpath}", "rmqctl.servers.Keys", tmp_path, broker, names], 120)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = {}
    for line in done.stdout.splitlines():
        server, _, rest = line.partition(" ")
        key, _, value = rest.partition("=")
        found.setdefault(server, {})[key] = value
    assert {server: sorted(table) for server, table in found.items()} == keys_of_servers(version)
    release = RELEASES[version]
    ours = {"broker": broker_defaults(release), "namesrv": name_server_defaults(release)}
    differing = {
        key: (value, found[server][key])
        for server, table in ours.items()
        for key, value in table.items()
        if found[server][key] != value and key not in given
    }
    assert differing == {} or os.cpu_count() != _CORES
