"""The shared flags, through small commands that only tell what they were given."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from rmqctl.flags import options
from rmqctl.flags.options import StoreLocation, locate_store
from rmqctl.output.output import Output

got: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    got.clear()
    monkeypatch.delenv("RMQCTL_STORE", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")


@click.command()
@options.store_options
@options.output_options
@options.time_options
@options.topic_option.but(required=True)
@options.queue_option
@options.group_option
@options.offset_option
@options.key_option.but(multiple=True)
@options.id_option
@options.tag_option
@options.limit_option.but(default=32)
@options.yes_option
@options.dry_run_option
def everything(**arguments: Any) -> None:
    """Tell."""
    got.update(arguments)
    arguments["output"].record({"topic": arguments["topic"]})


def run(*arguments: str) -> Result:
    return CliRunner().invoke(everything, ["-t", "T", *arguments])


def test_what_a_command_gets_by_default() -> None:
    assert run().exit_code == 0
    output = got.pop("output")
    assert isinstance(output, Output)
    assert output.format == "table"
    assert got == {
        "store": StoreLocation(Path("/home/someone/store"), None),
        "topic": "T",
        "queue_id": None,
        "group": None,
        "offset": None,
        "key": (),
        "message_id": None,
        "tag": None,
        "limit": 32,
        "begin": None,
        "end": None,
        "yes": False,
        "dry_run": False,
    }


def test_the_short_flags_of_mqadmin() -> None:
    line = "-s /s -g G -q 3 -o 99 -k a -k b -i ID -n 5 -b 1000 -e 2000 -y --dry-run --tag A --json"
    result = run(*line.split())
    assert result.output == '{"topic": "T"}\n'
    assert got.pop("output").is_json
    assert got == {
        "store": StoreLocation(Path("/s"), None),
        "topic": "T",
        "queue_id": 3,
        "group": "G",
        "offset": 99,
        "key": ("a", "b"),
        "message_id": "ID",
        "tag": "A",
        "limit": 5,
        "begin": 1000,
        "end": 2000,
        "yes": True,
        "dry_run": True,
    }


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("-q -1", "-1 is not in the range x>=0"),
        ("-o x", "'x' is not a valid integer"),
        ("-n 0", "0 is not in the range x>=1"),
        ("-n 9223372036854775808", "9223372036854775808 is more than 9223372036854775807"),
        ("-o 9223372036854775808", "9223372036854775808 is more than 9223372036854775807"),
        ("-q 2147483648", "2147483648 is more than 2147483647"),
        ("-b tomorrow", "'tomorrow' is not a time"),
        ("-b 2h", "did you mean '2h ago'?"),
        ("-b 2000 -e 1000", "is before --begin"),
        ("--format xml", "'xml' is not one of"),
        ("-c /nowhere/broker.conf", "does not exist"),
    ],
)
def test_wrong_values_are_usage_errors(arguments: str, reason: str) -> None:
    result = run(*arguments.split())
    assert result.exit_code == 2
    assert reason in result.output
    assert got == {}


def test_times_are_milliseconds_however_they_are_written() -> None:
    run("-b", "2023-11-14T22:13:20", "-e", "now")
    assert got["begin"] == 1_700_000_000_000
    assert got["end"] > got["begin"]


def test_changing_a_flag_leaves_the_shared_one_alone() -> None:
    options.topic_option.but(required=True)
    assert CliRunner().invoke(click.command()(options.topic_option(lambda topic: None)), []).exit_code == 0


def broker_conf(folder: Path, text: str) -> Path:
    path = folder / "broker.conf"
    path.write_text(text)
    return path


def test_the_store_comes_from_the_flag_before_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQCTL_STORE", "/from/environment")
    config = broker_conf(tmp_path, "storePathRootDir=/from/config\n")
    run("-s", "/from/flag", "-c", str(config))
    assert got["store"] == StoreLocation(Path("/from/flag"), config)
    run("-c", str(config))
    assert got["store"] == StoreLocation(Path("/from/environment"), config)
    monkeypatch.setenv("RMQCTL_STORE", "")
    run("-c", str(config))
    assert got["store"] == StoreLocation(Path("/from/config"), config)


@pytest.mark.parametrize("text", ["", "# storePathRootDir=/commented\n", "brokerName=a\n", "storePathRootDir=\n"])
def test_a_config_without_a_root_means_the_default(tmp_path: Path, text: str) -> None:
    assert locate_store(None, broker_conf(tmp_path, text)).path == Path("/home/someone/store")


def test_output_is_flushed_when_the_command_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[bool] = []

    class Stream(io.StringIO):
        def flush(self) -> None:
            flushed.append(True)

    monkeypatch.setattr("sys.stdout", Stream())
    assert everything.callback is not None
    with click.Context(everything):
        everything.callback(
            **dict.fromkeys(("store_path", "config_path", "begin", "end"), None),
            as_json=True,
            output_format="table",
            digits=False,
            topic="T",
        )
    assert flushed
