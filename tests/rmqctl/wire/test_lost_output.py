"""`consume -g` whose output is lost acknowledges no message but those that were printed."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.formats.message import Message
from rmqctl.network.clients.producer import Producer
from rmqctl.output import outcome as exit_codes
from rmqctl.store.config.config import StoreConfig
from tests.network.serving import serving_here
from tests.processes import start
from tests.rmqctl.looking import run

COUNT = 80
BODIES = [f"body-{number:04}" for number in range(COUNT)]
FORMATS = {"table": (), "json": ("--json",), "csv": ("--format", "csv")}
WAYS = {
    "pull": (),
    "limit": ("--limit", "50"),
    "ordered": ("--ordered",),
    "ordered, limit": ("--ordered", "--limit", "50"),
    "assigned": ("--no-client-rebalance",),
    "sent back": ("--send-back",),
}


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config = StoreConfig(mapped_file_size_commit_log=1 << 20)
    with serving_here(tmp_path_factory.mktemp("served") / "store", config, {}) as ready:
        with Producer(ready.namesrv) as producer:
            queues = producer.queues("Lost")
            for number, body in enumerate(BODIES):
                producer.send(Message("Lost", body.encode()), queues[number % 2])
        yield ready.namesrv


def _command(namesrv: str, group: str, *more: str) -> list[str]:
    return [sys.executable, "-m", "rmqctl.start", "consume", "-n", namesrv, "-t", "Lost", "-g", group, *more]


def _rest(namesrv: str, group: str) -> list[str]:
    """The bodies that the group gets afterwards."""
    return sorted(one["body"] for one in run(*_command(namesrv, group, "--json")[3:]).objects)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_acknowledged_where_nothing_is_printed(namesrv: str, format: str, way: str) -> None:
    for place in ("full", "closed"):
        group = re.sub(r"\W+", "-", f"{way}-{format}-{place}")
        command = _command(namesrv, group, *WAYS[way], *FORMATS[format])
        if place == "full":
            with open("/dev/full", "wb") as full:
                ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=60)
        else:
            reading, writing = os.pipe()
            os.close(reading)
            with open(writing, "wb") as pipe:
                ran = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, timeout=60)
        assert ran.returncode == (exit_codes.WRITE_FAILED if place == "full" else 0), ran.stderr.decode()
        assert _rest(namesrv, group) == BODIES


def _small_files() -> None:
    # Python ignores SIGXFSZ: a write past the limit fails, as on a disk that fills
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("way", ["pull", "limit", "ordered"])
def test_what_was_printed_is_acknowledged_and_no_more(namesrv: str, tmp_path: Path, format: str, way: str) -> None:
    group = f"part-{way}-{format}"
    path = tmp_path / "printed"
    command = _command(namesrv, group, *WAYS[way], *FORMATS[format])
    with path.open("wb") as output:
        ran = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, timeout=60, preexec_fn=_small_files)
    assert ran.returncode == exit_codes.WRITE_FAILED, ran.stderr.decode()
    whole = path.read_text().rpartition("\n")[0]
    printed = set(re.findall(r"body-\d{4}", whole))
    assert 0 < len(printed) < 50
    rest = _rest(namesrv, group)
    assert set(BODIES) - printed <= set(rest)
    if format != "table":
        # a table's batch comes again as a whole
        assert len(rest) == COUNT - len(printed)


def test_a_table_is_printed_as_messages_come(namesrv: str) -> None:
    """Nobody waits for the messages that would fill a page."""
    for more in ((), ("--ordered",), ("--exec", "cat")):
        command = _command(namesrv, f"follows{len(more)}", "--follow", *more)
        process = start(command, seconds=60, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(COUNT + 1)]
        process.terminate()
        process.wait()
        assert sum("Lost" in line for line in lines) == COUNT


def test_a_line_that_is_json_names_each_message_once(namesrv: str) -> None:
    ran = run(*_command(namesrv, "whole", "--json")[3:])
    assert sorted(json.loads(line)["body"] for line in ran.out.splitlines()) == BODIES
    assert run(*_command(namesrv, "whole", "--json")[3:]).code == 1
