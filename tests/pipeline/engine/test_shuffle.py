"""What tasks hand on: each bucket has its entries, in their order, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.formats.errors import UnreadableError
from rmqctl.pipeline.exchange import ShuffleReader, ShuffleWriter, bucket_of
from rmqctl.store.files.reading import Descriptors

ENTRIES = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.one_of(st.text(max_size=5), st.lists(st.integers(-(1 << 63), 1 << 63), max_size=3)),
        st.lists(st.binary(max_size=20), max_size=3),
    ),
    max_size=20,
)


@given(ENTRIES)
def test_buckets(tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[int, object, list[bytes]]]) -> None:
    path = tmp_path_factory.mktemp("shuffle") / "file"
    writer = ShuffleWriter(path, 5)
    for bucket, key, data in entries:
        writer.put(bucket, key, data)
    writer.finish()
    writer.close()
    with Descriptors() as descriptors:
        reader = ShuffleReader(path, 5, descriptors)
        for bucket in range(5):
            found = [(key, reader.read(at, length)) for key, at, length in reader.entries(bucket)]
            assert found == [(key, b"".join(data)) for one, key, data in entries if one == bucket]


def test_entries_larger_than_what_is_held(tmp_path: Path) -> None:
    pieces = [os.urandom(size) for size in (10, 3_000_000, 0, 1 << 20, 5)]
    writer = ShuffleWriter(tmp_path / "file", 1)
    for number, piece in enumerate(pieces):
        writer.put(0, number, [piece[: len(piece) // 2], piece[len(piece) // 2 :]])
    writer.finish()
    with Descriptors() as descriptors:
        reader = ShuffleReader(tmp_path / "file", 1, descriptors)
        assert [reader.read(at, length) for _, at, length in reader.entries(0)] == pieces


def test_a_file_that_is_lost_or_cut_is_missed(tmp_path: Path) -> None:
    writer = ShuffleWriter(tmp_path / "file", 2)
    writer.put(1, "key", [b"x" * 100])
    writer.finish()
    with Descriptors() as descriptors:
        with pytest.raises(UnreadableError):
            list(ShuffleReader(tmp_path / "none", 2, descriptors).entries(0))
        reader = ShuffleReader(tmp_path / "file", 2, descriptors)
        ((_, position, length),) = reader.entries(1)
        os.truncate(tmp_path / "file", 50)
        with pytest.raises(UnreadableError, match="shorter"):
            reader.read(position, length)


def test_no_cut_file_is_taken_for_a_whole_one(tmp_path: Path) -> None:
    writer = ShuffleWriter(tmp_path / "file", 3)
    for bucket in (0, 1, 2, 1):
        writer.put(bucket, bucket, [b"x" * 10])
    writer.finish()
    whole = (tmp_path / "file").read_bytes()
    with Descriptors() as descriptors:
        reader = ShuffleReader(tmp_path / "file", 3, descriptors)
        assert [len(list(reader.entries(bucket))) for bucket in range(3)] == [1, 2, 1]
        for size in range(len(whole)):
            (tmp_path / "file").write_bytes(whole[:size])
            for bucket in range(3):
                with pytest.raises(UnreadableError, match="shorter"):
                    list(reader.entries(bucket))


def test_a_name_has_one_bucket() -> None:
    assert {bucket_of(f"topic {number}", 7) for number in range(100)} == set(range(7))
    assert bucket_of("0 Topic", 1024) == 280
