"""A plain body under a compression flag: named, shown and mended; a stream that breaks off is another finding."""

from __future__ import annotations

import random
import zlib

import pytest

from rmqctl.formats.checksums import body_crc
from rmqctl.formats.compression import is_plain
from rmqctl.formats.errors import RefusedError
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.journal.plan import Plan, WriteRange
from rmqctl.store.repair.repair import mend_flag
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, tree_state
from tests.rmqctl.looking import run
from tests.store.check.breaking import get, messages, put, put_field

# compression types, and hosts of 16 bytes, which move what follows
_KINDS_AND_ADDRESSES = 0x701 | 0x30


def test_named_and_mended(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    sound = tree_state(store)
    chosen = next(one for one in messages(store)[300:] if len(one.body) > 10)
    put_field(store, chosen.physical_offset, "sys_flag", chosen.sys_flag | 1)
    broken = tree_state(store)
    (found,) = [
        one for one in run("check", "--full", "-s", store, "--json").objects if one.get("code") == "RMQ-LOG-032"
    ]
    assert found["physical_offset"] == chosen.physical_offset
    assert found["fix"].startswith("rmqctl repair --only RMQ-LOG-032")
    done = run("where", chosen.physical_offset, "-s", store)
    assert "stored plain" in done.out
    assert done.code == 1
    run("repair", "--only", "RMQ-LOG-032", "-s", store, "--yes")
    assert tree_state(store) == sound
    assert run("undo", "-s", store, "--yes").code == 0
    assert tree_state(store) == broken


@pytest.mark.parametrize("others", [0, 1 << 30, -(1 << 31), -2], ids=hex)
def test_all_other_bits_stay(golden_store: GoldenStore, others: int) -> None:
    """The flag is a signed int of Java: bit 31 may be set, and is no reason to leave or clear anything."""
    store = golden_store("clean")
    chosen = next(one for one in messages(store) if len(one.body) > 10)
    kept = others & ~_KINDS_AND_ADDRESSES
    put_field(store, chosen.physical_offset, "sys_flag", kept | 1)
    with StoreFiles(store) as files:
        plan = Plan()
        mend_flag(files, Finding("RMQ-LOG-032", "", physical_offset=chosen.physical_offset), plan)
        (operation,) = plan.operations
    assert isinstance(operation, WriteRange)
    assert isinstance(operation.data, bytes)
    assert int.from_bytes(operation.data, "big", signed=True) == kept


@pytest.mark.parametrize(
    "body", [zlib.compress(b"a" * 99)[:20], b"\x28\xb5\x2f\xfdx", b"\x04\x22\x4d\x18", b"\x1f\x8b", b""]
)
def test_streams_are_not_plain(body: bytes) -> None:
    assert not is_plain(body)
    assert is_plain(b"not compressed" + body)


def test_a_stream_that_breaks_off_is_another_finding_without_a_mend(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    chosen = next(one for one in messages(store)[300:] if len(one.body) > 40)
    stream = zlib.compress(random.Random(1).randbytes(9000))[: len(chosen.body)]
    place = get(store, chosen.physical_offset, chosen.total_size).index(chosen.body)
    put(store, chosen.physical_offset + place, stream)
    put_field(store, chosen.physical_offset, "body_crc", body_crc(stream))
    put_field(store, chosen.physical_offset, "sys_flag", chosen.sys_flag | 1)
    (found,) = [one for one in run("check", "--full", "-s", store, "--json").objects if one["severity"] == "warning"]
    assert (found["code"], found["fix"], found["data_lost"]) == ("RMQ-LOG-020", None, None)


def test_a_checksum_that_covers_the_flag_leaves_it(golden_store: GoldenStore) -> None:
    """Nor is the message one that RMQ-LOG-032 can be about: cleared or set, the flag breaks `__CRC32#`."""
    store = golden_store("propcrc")
    chosen = next(one for one in messages(store) if one.body and "__CRC32#" in one.properties())
    with StoreFiles(store) as files:
        plan = Plan()
        with pytest.raises(RefusedError):
            mend_flag(files, Finding("RMQ-LOG-032", "", physical_offset=chosen.physical_offset), plan)
        assert plan.operations == []
