"""Keys and topics in any script, whatever the locale says of the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from tests.quick import every

_KEY, _TOPIC = "ключ-7", "тема"


def _run(*arguments: str | bytes, **environment: str) -> subprocess.CompletedProcess[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHONUTF8"))}
    command = [os.fsencode(argument) for argument in (sys.executable, "-m", "rmqctl", *arguments)]
    return subprocess.run(command, capture_output=True, timeout=120, check=False, env=kept | environment)


@pytest.mark.parametrize(
    "environment",
    every(
        4,
        [
            {"LC_ALL": "C", "PYTHONUTF8": "0"},
            {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
            {"LC_ALL": "C"},
            {"LC_ALL": "C.UTF-8"},
        ],
    ),
)
def test_any_script(environment: dict[str, str], tmp_path: Path) -> None:
    store = str(tmp_path / "склад")
    key, topic = _KEY.encode(), _TOPIC.encode()
    done = _run(
        "append",
        "-s",
        store.encode(),
        "--create",
        "--anywhere",
        "-t",
        topic,
        "-k",
        key,
        "--body",
        "тело".encode(),
        **environment,
    )
    assert done.returncode == exit_codes.OK, done.stderr
    done = _run("query", "-s", store.encode(), "-k", key, "--json", **environment)
    assert done.returncode == exit_codes.OK, done.stderr
    row = json.loads(done.stdout)
    assert (row["topic"], row["keys"], row["body"]) == (_TOPIC, [_KEY], "тело")
    for verb in (("info",), ("ls",), ("cat",), ("ls", "--files"), ("query", "-t", topic, "-q", "0", "-o", "0")):
        done = _run(verb[0], "-s", store.encode(), *verb[1:], **environment)
        assert (done.returncode, done.stderr) == (exit_codes.OK, b""), done.stderr
    assert (tmp_path / "склад" / "consumequeue" / _TOPIC).is_dir()


@pytest.mark.parametrize("environment", every(2, [{"LC_ALL": "C", "PYTHONUTF8": "0"}, {"LC_ALL": "C.UTF-8"}]))
def test_what_is_no_text(environment: dict[str, str], tmp_path: Path) -> None:
    store = str(tmp_path / "s")
    for flags in (("-t", b"T\xff"), ("-t", b"T", "-k", b"\xff\xfe"), ("-t", b"T", "--tags", b"\xe9")):
        done = _run("append", "-s", store, "--create", "--body", "x", *flags, **environment)
        assert (done.returncode, b"is not UTF-8" in done.stderr) == (exit_codes.USAGE, True), done.stderr
    done = _run("query", "-s", store, "-t", b"T\xff", "-i", "x", **environment)
    assert (done.returncode, b"is not UTF-8" in done.stderr) == (exit_codes.USAGE, True), done.stderr
    # a body is bytes, and so is a path
    there = os.fsencode(tmp_path) + b"/\xff"
    done = _run("append", "-s", there, "--create", "-t", "T", "--body", b"\xff", "--json", **environment)
    assert done.returncode == exit_codes.OK, done.stderr
    for verb in (("cat", "--json"), ("info", "--json"), ("ls", "--files", "--json"), ("ls", "--files")):
        done = _run(verb[0], "-s", there, *verb[1:], **environment)
        assert done.returncode == exit_codes.OK, done.stderr
