"""The empty end of a file on a server is known by the digest of the whole, not by reading it, and never by guessing."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rmqctl.store.files.reading import Descriptors, end_of_nonzero
from rmqctl.store.files.remote_files import BLOCK, digest_of
from rmqctl.store.info.info import info
from rmqctl.store.message_store import MessageStore
from rmqctl.store.store_files import StoreFiles
from tests.store.remote.served import served
from tests.store.write.writing import SMALL, message

SIZE = 90 * BLOCK + 777


@pytest.mark.parametrize(
    ("filled", "most"),
    [
        ([(0, 5)], 6),
        ([(0, 10 * BLOCK)], 22),
        ([(0, 10 * BLOCK + 1)], 22),
        ([(0, 3 * BLOCK), (20 * BLOCK, 20 * BLOCK + 3)], 200),  # a gap of zeros, and data behind it
        ([(0, 3 * BLOCK), (80 * BLOCK, 80 * BLOCK + 3)], 200),
        ([(0, 60 * BLOCK)], 50),
        ([(0, SIZE)], 18),
        ([], 6),
    ],
)
@pytest.mark.parametrize("has_digests", [True, False])
def test_the_end_is_the_same_however_it_is_found(
    tmp_path: Path, filled: list[tuple[int, int]], most: int, has_digests: bool
) -> None:
    data = bytearray(SIZE)
    for begin, end in filled:
        data[begin:end] = b"x" * (end - begin)
    (tmp_path / "file").write_bytes(data)
    with served(tmp_path, has_digests=has_digests) as (server, shadow), Descriptors() as descriptors:
        path = shadow.folder / "file"
        wanted = max((end for _, end in filled), default=0)
        assert end_of_nonzero(descriptors, path, 0, SIZE) == wanted
        assert end_of_nonzero(descriptors, path, 7, SIZE) == max(wanted, 7)
        if has_digests:
            assert server.bytes_read <= most * BLOCK


def test_versions_that_are_digests() -> None:
    digest = hashlib.md5(b"x", usedforsecurity=False).hexdigest()
    assert digest_of(f'"{digest}"') == digest_of(digest) == digest
    assert digest_of(f'"{digest}-3"') is None
    assert digest_of("1700000000000000000") is None


def test_a_version_that_looks_like_a_digest_and_is_none_costs_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"x" * BLOCK + bytes(SIZE - BLOCK))
    monkeypatch.setattr("tests.store.remote.served.FolderFiles._version", lambda *_: "0" * 32)
    with served(tmp_path) as (server, shadow), Descriptors() as descriptors:
        for _ in range(2):
            assert end_of_nonzero(descriptors, shadow.folder / "file", 0, SIZE) == BLOCK
        assert server.bytes_read <= SIZE + 20 * BLOCK


def test_info_reads_what_it_says(tmp_path: Path) -> None:
    """Queue files of RocketMQ's own size, nearly empty, as most are."""
    config = SMALL._replace(mapped_file_size_consume_queue=6_000_000)
    with MessageStore.open(tmp_path / "store", "rw", config, create=True) as store:
        for number in range(80):
            store.put(message(100 + number, topic=f"T{number % 8}"))
    queues = sum(path.stat().st_size for path in (tmp_path / "store" / "consumequeue").rglob("0*") if path.is_file())
    assert queues >= 8 * 6_000_000
    with StoreFiles(tmp_path / "store") as files:
        wanted = info(files, walk_log=False)
    with served(tmp_path / "store", has_digests=True) as (server, shadow), StoreFiles(shadow.folder) as files:
        assert info(files, walk_log=False)["consumequeue"] == wanted["consumequeue"]
        of_queues = sum(end - begin for name, begin, end in server.reads if name.startswith("consumequeue"))
        assert of_queues <= queues // 4
