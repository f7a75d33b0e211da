"""Compressed bodies whose stream breaks off after a good start: commands that unpack them report that.

No command calls what such a body may hold absent.
"""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

import pytest

from rmqctl.formats.layouts import SYS_FLAG_COMPRESSED
from rmqctl.store import Message, MessageStore, StoreConfig
from tests.rmqctl.looking import run


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a good message and one whose body breaks off; its CRC holds, so the producer sent it so."""
    store = tmp_path_factory.mktemp("broken") / "store"
    whole = zlib.compress(b"".join(hashlib.sha256(bytes([number])).digest() for number in range(20)))
    config = StoreConfig(mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000)
    with MessageStore.open(store, "rw", config=config, create=True) as opened:
        opened.put(Message("T", b"good", properties={"KEYS": "k1"}))
        half = whole[: len(whole) // 2]
        opened.put(Message("T", half, properties={"KEYS": "k2"}, sys_flag=SYS_FLAG_COMPRESSED))
    return store


def test_a_plain_check_says_what_it_did_not_unpack(broken: Path) -> None:
    done = run("check", "-s", broken)
    assert (done.code, "1 compressed body not unpacked (--full)" in done.err) == (0, True)
    assert run("check", "-s", broken, "--json", "--summary").objects[-1]["summary"]["bodies_not_unpacked"] == 1
    full = run("check", "--full", "-s", broken)
    assert (full.code, "RMQ-LOG-020" in full.out, "not unpacked (--full)" in full.err) == (1, True, False)


@pytest.mark.parametrize("options", [(), ("-t", "T"), ("--json",), ("--order", "queue")], ids=" ".join)
def test_a_search_that_finds_nothing_is_not_certain(broken: Path, options: tuple[str, ...]) -> None:
    done = run("cat", "-s", broken, "--grep", "wanted", *options)
    assert done.code == 7
    assert "the body was not searched, because it does not unpack" in done.err


def test_a_search_that_finds_others_says_so_too(broken: Path) -> None:
    done = run("cat", "-s", broken, "--grep", "good", "--json")
    assert (done.code, len(done.objects)) == (1, 1)
    assert done.err.count("the body was not searched") == 1


def test_a_key_with_a_search(broken: Path) -> None:
    done = run("query", "-s", broken, "-k", "k2", "--grep", "wanted")
    assert (done.code, "the body was not searched" in done.err) == (7, True)
    assert run("query", "-s", broken, "-k", "k1", "--grep", "wanted").code == 1


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_an_export_reports_and_counts_it(broken: Path, tmp_path: Path, kind: str) -> None:
    done = run("export", "-s", broken, tmp_path / f"out.{kind}", "--json")
    assert (done.code, "unpack" in done.err or "zlib stream" in done.err) == (1, True)
    row = done.objects[0]
    assert (row["messages"], row["bodies_as_stored"], row["damaged_spans"]) == (2, 1, 0)
    columns = ("--columns", "topic,queue_offset")
    other = run("export", "-s", broken, tmp_path / f"other.{kind}", *columns, "--json")
    assert (other.code, other.objects[0]["bodies_as_stored"]) == (0, 0)
    nothing = run("export", "-s", broken, tmp_path / f"none.{kind}", "--grep", "wanted")
    assert (nothing.code, (tmp_path / f"none.{kind}").exists()) == (7, False)
