"""The frame of the command line: verbs found late, every outcome a sentence and an exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import pytest

from rmqctl.formats.errors import (
    CorruptError,
    NotAStoreError,
    NotFoundError,
    RefusedError,
    RmqctlError,
    StoreInUseError,
    UnreadableError,
    UnsupportedError,
    UsageError,
    WriteFailedError,
)
from rmqctl.main import GROUPS, VERBS, Verb, VerbGroup, actions_of, cli, main
from rmqctl.output import outcome as exit_codes
from rmqctl.store.status import how_to_add
from tests import processes

ROOT = Path(__file__).parents[2]
# output that waits in a buffer until the end is the harder case
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


@click.command()
@click.option("--number", type=int)
def fake(number: int | None) -> int | None:
    """Stand in for a verb."""
    if outcome:
        raise outcome[0]
    click.echo("data")
    return number


@click.command()
@click.option("--json", "as_json", is_flag=True)
def json_fake(as_json: bool) -> int:
    """Stand in for a verb that prints JSON."""
    raise outcome[0]


outcome: list[BaseException] = []
json_fakes = VerbGroup(name="rmqctl", verbs={"fake": Verb(f"{__name__}:json_fake", "look", "Stand in.")})
fakes = VerbGroup(name="rmqctl", verbs={"fake": Verb(f"{__name__}:fake", "look", "Stand in.")})


@pytest.fixture(autouse=True)
def _no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome.clear()
    monkeypatch.delenv("RMQCTL_DEBUG", raising=False)


def run(error: BaseException | None = None, *arguments: str) -> int:
    if error is not None:
        outcome.append(error)
    return main(["fake", *arguments], fakes)


def test_a_command_that_does_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    assert capsys.readouterr() == ("data\n", "")


@pytest.mark.parametrize("number", [0, 1, 5])
def test_a_command_may_return_its_exit_code(number: int) -> None:
    assert run(None, "--number", str(number)) == number


def test_a_command_may_end_with_click_exit() -> None:
    assert run(click.exceptions.Exit(1)) == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CorruptError("x"), 7),
        (NotFoundError("x"), 1),
        (UsageError("x"), 2),
        (NotAStoreError("x"), 3),
        (UnreadableError("x"), 3),
        (StoreInUseError("x"), 4),
        (RefusedError("x"), 5),
        (UnsupportedError("x"), 5),
        (WriteFailedError("x"), 6),
        (RmqctlError("x"), 70),
        (click.UsageError("x"), 2),
        (click.FileError("x"), 2),
        (ValueError("x"), 70),
        (MemoryError("x"), 6),
        (RuntimeError("can't start new thread"), 6),
        (OSError(24, "Too many open files", "f"), 6),
        (OSError(5, "x"), 70),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (BrokenPipeError(32, "Broken pipe"), 0),
    ],
)
def test_every_error_has_its_code_and_no_traceback(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(error) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    assert captured.err == "" if code == 0 else captured.err.startswith("rmqctl: ")


def test_with_json_an_error_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    damaged = CorruptError("damaged \x1b", file="/store/\u202ecommitlog", physical_offset=12, hint="look\nhere")
    outcome.append(damaged)
    assert main(["fake", "--json"], json_fakes) == 7
    captured = capsys.readouterr()
    assert captured.out == ""
    assert not {"\x1b", "\u202e"} & set(captured.err)
    assert [json.loads(line) for line in captured.err.splitlines()] == [
        {
            "error": "RMQ-E-005",
            "exit_code": 7,
            "message": "damaged \x1b",
            "file": "/store/\u202ecommitlog",
            "physical_offset": 12,
            "hint": "look\nhere",
        }
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["query", "--json"], "RMQ-E-002", 2),
        (["query", "--format", "json", "-o", "-1"], "RMQ-E-002", 2),
        (["qeury", "--json"], "RMQ-E-002", 2),
        (["info", "--format=json", "-s", "/nowhere"], "RMQ-E-003", 3),
        (["query", "-o", "1", "-s", "/nowhere", "--json"], "RMQ-E-003", 3),
    ],
)
def test_with_json_every_mistake_is_one_object(
    arguments: list[str], code: str, exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == exit_code
    (line,) = capsys.readouterr().err.splitlines()
    said = json.loads(line)
    assert (said["error"], said["exit_code"], bool(said["message"])) == (code, exit_code, True)
    assert main([arguments[0], *(["-k", "a", "-i", "b"] if arguments[0] == "query" else ["-x"]), "--", "--json"]) == 2
    assert capsys.readouterr().err.startswith("rmqctl: ")


def test_an_error_names_its_place_and_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    run(RefusedError("damaged \x1b[31m", file="/store/\u202ecommitlog", physical_offset=12, hint="add --cut\n"))
    assert capsys.readouterr().err == (
        "rmqctl: /store/\\u202ecommitlog at offset 12: damaged \\x1b[31m\n  add --cut\\n\n"
    )


def test_no_store_says_how_to_name_one(capsys: pytest.CaptureFixture[str]) -> None:
    run(NotAStoreError("no such directory", file="/nowhere"))
    assert capsys.readouterr().err == (
        "rmqctl: /nowhere: no such directory\n  name the store with -s DIR, $RMQCTL_STORE or -c broker.conf\n"
    )


def test_a_bug_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ValueError("topic \x1b]0;evil\x07")) == 70
    assert capsys.readouterr().err == (
        "rmqctl: unexpected ValueError: topic \\x1b]0;evil\\x07\n"
        f"  This is a bug in rmqctl {version('rmqctl')}; RMQCTL_DEBUG=1 shows where it comes from.\n"
    )


@pytest.mark.parametrize("module", ["pyarrow", "isal.isal_zlib", "pyspark.sql"])
def test_a_missing_extra_is_named_and_no_bug(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ModuleNotFoundError(f"No module named {module!r}", name=module)) == exit_codes.REFUSED
    package = module.partition(".")[0]
    said = f"rmqctl: this needs {package}, which is not installed here\n  {how_to_add(module)}\n"
    assert capsys.readouterr().err == said


def test_a_missing_module_of_no_extra_is_a_bug() -> None:
    assert run(ModuleNotFoundError("No module named 'rmqctl.nothing'", name="rmqctl.nothing")) == exit_codes.BUG
    assert run(ModuleNotFoundError("no name")) == exit_codes.BUG


def test_the_traceback_on_request(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RMQCTL_DEBUG", "1")
    run(ValueError("topic \x1b]0;evil\x07"))
    shown = capsys.readouterr().err
    assert "Traceback (most recent call last):\n" in shown
    assert "please report it" in shown
    assert "\x1b" not in shown
    monkeypatch.setenv("RMQCTL_DEBUG", "0")
    run()
    assert "Traceback" not in capsys.readouterr().err


def test_ctrl_c_is_one_short_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "rmqctl: interrupted\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["fake", "--number", "x"], "rmqctl: Invalid value for '--number': 'x' is not a valid integer."),
        (["fake", "--numbr", "1"], "rmqctl: No such option"),
        (["fake", "extra\x1b[31m"], "rmqctl: Got unexpected extra argument (extra\\x1b[31m)"),
        (["--wrong"], "rmqctl: No such option"),
        (["fa"], "rmqctl: there is no verb 'fa'.\n"),
        (["fka"], "rmqctl: there is no verb 'fka'. Did you mean 'fake'?\n"),
        (["FAKE"], "rmqctl: there is no verb 'FAKE'. Did you mean 'fake'?\n"),
        (["zzzz"], "rmqctl: there is no verb 'zzzz'.\n"),
        ([""], "rmqctl: there is no verb ''.\n"),
    ],
)
def test_wrong_usage(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments, fakes) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(sentence)
    assert "Usage: rmqctl" in captured.err
    assert "--help'." in captured.err
    assert "\x1b" not in captured.err


@pytest.mark.parametrize("verb", ["topics", "groups"])
def test_whoever_asks_a_listing_to_list_is_told_how(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "list"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"rmqctl: there is no verb 'list'. `rmqctl {verb}` without an action lists.\n")


def test_no_verb_at_all_shows_the_help_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Usage: rmqctl" in captured.err
    assert "recover" in captured.err


def test_help_groups_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    places = [shown.index(f"\n  {name} ") for name in VERBS]
    headings = [shown.index(GROUPS[group] + ":") for group in dict.fromkeys(verb.group for verb in VERBS.values())]
    assert places == sorted(places)
    assert headings == sorted(headings)
    assert headings[0] < places[0] < headings[1]
    assert shown.count("...") <= 1, "a short help text is cut"


def test_a_group_without_verbs_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"], VerbGroup("few", verbs={"info": VERBS["info"]})) == 0
    shown = capsys.readouterr().out
    assert GROUPS["look"] in shown
    assert GROUPS["many"] not in shown


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"rmqctl {version('rmqctl')}\n"


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_of_the_table_exists_and_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: rmqctl {name} ")
    for action in actions_of(command):
        for parameter in action.params:
            assert not isinstance(parameter, click.Option) or parameter.help, f"{parameter.name} has no help"
    for one in command.verbs if isinstance(command, VerbGroup) else ():
        assert main([name, one, "--help"]) == 0
        assert capsys.readouterr().out.startswith(f"Usage: rmqctl {name} {one} ")


def test_every_command_module_is_in_the_table() -> None:
    modules = {path.stem for path in (ROOT / "rmqctl" / "commands").glob("*.py")} - {"__init__"}
    commands = [cli.get_command(click.Context(cli), name) for name in VERBS]
    verbs = [*VERBS.values(), *(one for each in commands if isinstance(each, VerbGroup) for one in each.verbs.values())]
    assert {verb.target.split(":")[0].rpartition(".")[2] for verb in verbs} >= {
        module for module in modules if not module.startswith("_")
    }


def python(code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": BUFFERED}
    return processes.run([sys.executable, "-c", code], **{**streams, **options})


MANY_LINES = """
import sys, click
from rmqctl.main import main
from rmqctl.output.output import Output
@click.group()
def cli(): pass
@cli.command()
def many():
    output = Output(True)
    output.rows(["n"], ({"n": "x" * 100} for _ in range(100_000)))
sys.exit(main(["many"], cli))
"""


def test_a_reader_that_goes_away_is_no_error() -> None:
    with processes.start(
        [sys.executable, "-c", MANY_LINES], env=BUFFERED, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_reader_that_was_never_there_is_no_error(lines: int) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as nobody:
        ended = python(MANY_LINES.replace("100_000", str(lines)), stdout=nobody)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_full_disk_under_stdout_is_loud(lines: int) -> None:
    with open("/dev/full", "w") as full:
        ended = python(MANY_LINES.replace("100_000", str(lines)), stdout=full)
    assert ended.returncode == 6
    assert ended.stderr.startswith("rmqctl: cannot write to standard output: No space left on device\n")
    assert "Exception ignored" not in ended.stderr


def test_a_poor_locale_prints_escapes_and_json_stays_utf8() -> None:
    code = (
        "import sys, click; from rmqctl.main import main; from rmqctl.output.output import Output\n"
        "@click.group()\ndef cli(): pass\n"
        "@cli.command()\ndef show(): Output().record({'a': '中'}); Output(True).record({'a': '中'})\n"
        "sys.exit(main(['show'], cli))"
    )
    poor = {**BUFFERED, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    ended = python(code, env=poor, encoding="utf-8")
    assert (ended.returncode, ended.stdout) == (0, 'a  \\u4e2d\n{"a": "中"}\n')


def test_start_up_imports_nothing_heavy_and_no_verb() -> None:
    ended = python(
        "import sys; from rmqctl.main import main; main(['--help'])\n"
        "heavy = {'numpy', 'construct', 'rich', 'pyarrow', 'pyspark', 'crcmod', 'lz4', 'zstandard', 'csv'}\n"
        "print(sorted(heavy & set(sys.modules)), [n for n in sys.modules if n.startswith('rmqctl.commands')],"
        " file=sys.stderr)"
    )
    assert ended.stderr.strip() == "[] []"


def test_python_dash_m_is_the_same_program() -> None:
    ended = processes.run([sys.executable, "-m", "rmqctl", "nonsense"])
    assert ended.returncode == 2
    assert ended.stderr.startswith("rmqctl: there is no verb 'nonsense'.")
