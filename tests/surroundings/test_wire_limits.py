"""Wire verbs where a standard file is closed, descriptors are few or the folder for temporary files is full."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.formats.message import Message
from rmqctl.store import MessageStore
from rmqctl.store.config.config import StoreConfig
from tests.network.serving import Served, serving
from tests.quick import sample

CLOSED = "rmqctl: standard output is closed"
VERBS = {
    "produce": "produce -n {namesrv} -t T --body y",
    "consume": "consume -n {namesrv} -t T --limit 1",
    "mirror": "mirror {slaves} {mirror} --broker {broker} --exit-at-end",
    "serve": "serve -s {mine} --listen 127.0.0.1:0 --namesrv 127.0.0.1:0",
}
# verb, surroundings, exit code (124: it served until it was ended), what stderr says
CASES = [
    ("produce", "<&-", 0, ""),
    ("produce", ">&-", 6, CLOSED),
    ("produce", "2>&-", 0, ""),
    ("produce", "<&- >&- 2>&-", 6, ""),
    ("produce", "ulimit -n 5", 0, ""),
    ("produce", "full", 0, ""),
    ("consume", "<&-", 0, ""),
    ("consume", ">&-", 6, CLOSED),
    ("consume", "2>&-", 0, ""),
    ("consume", "<&- >&- 2>&-", 6, ""),
    ("consume", "ulimit -n 5", 0, ""),
    ("consume", "full", 0, ""),
    ("mirror", "<&-", 0, ""),
    ("mirror", ">&-", 6, CLOSED),
    ("mirror", "2>&-", 0, ""),
    ("mirror", "<&- >&- 2>&-", 6, ""),
    ("mirror", "ulimit -n 6", 6, "raise the limit (ulimit -n)"),
    ("mirror", "full", 0, ""),
    ("serve", "<&-", 124, ""),
    ("serve", ">&-", 6, CLOSED),
    ("serve", "2>&-", 124, ""),
    ("serve", "<&- >&- 2>&-", 6, ""),
    ("serve", "full", 124, ""),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("served") / "store"
    config = StoreConfig(mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=400)
    with MessageStore.open(root, "rw", config, create=True) as opened:
        opened.put(Message("T", b"x", 0))
    shutil.copytree(root, root.parent / "mine")
    return root


@pytest.fixture(scope="module")
def served(store: Path) -> Iterator[Served]:
    with serving(store, "--writable", "--ha-listen", "127.0.0.1:0") as running:
        yield running


def _line(verb: str, surroundings: str, words: str, folder: Path) -> str:
    line = f"{'timeout 3 ' if verb == 'serve' else ''}{sys.executable} -m rmqctl.start {words}"
    if surroundings == "full":
        filled = f"mount -t tmpfs -o size=4k none {folder} && head -c 4096 /dev/zero > {folder}/f"
        return f"unshare -m bash -c '{filled} && TMPDIR={folder} {line}'"
    return f"{surroundings}; {line}" if surroundings.startswith("ulimit") else f"{line} {surroundings}"


def _messages(store: Path) -> int:
    with MessageStore.open(store) as opened:
        return opened.get("T", 0, 0, 1).max_offset


@pytest.mark.parametrize(
    "case", sample([" ".join(case[:2]) for case in CASES], ["produce >&-", "mirror ulimit -n 6", "consume full"])
)
def test_surroundings_are_no_bug(store: Path, served: Served, case: str, tmp_path: Path) -> None:
    verb, surroundings, code, said = next(one for one in CASES if " ".join(one[:2]) == case)
    if surroundings == "full" and (os.geteuid() or subprocess.run(["unshare", "-m", "true"], timeout=60).returncode):
        pytest.skip("only root can mount a folder that is full")
    before = _messages(store)
    words = VERBS[verb].format(
        namesrv=served.namesrv,
        broker=served.broker,
        slaves=served.slaves,
        mirror=tmp_path / "mirror",
        mine=store.parent / "mine",
    )
    full = tmp_path / "full"
    full.mkdir()
    ran = subprocess.run(
        ["bash", "-c", _line(verb, surroundings, words, full)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.returncode, said in ran.stderr) == (code, True), ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    # what is refused was not sent before
    assert _messages(store) == before + (verb == "produce" and code == 0)
