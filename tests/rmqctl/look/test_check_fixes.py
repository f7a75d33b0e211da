"""The command that a finding names mends it: run as it stands, then checked again."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.checksums import PROPERTY_CRC_SIZE, frame_crc, property_crc_text
from rmqctl.output import outcome as exit_codes
from rmqctl.store.check.cross import Level
from tests.goldens import GoldenStore, tree_state
from tests.quick import every
from tests.rmqctl.looking import run
from tests.store.check import test_old_messages, test_pains_of_config, test_pains_of_files, test_pains_of_the_log
from tests.store.check.breaking import (
    HEAD,
    LOG_FILE_SIZE,
    alarms,
    checked,
    codes,
    get,
    messages,
    put,
    put_field,
)

_FILES = [pain for pain in test_pains_of_files.PAINS if pain.fix]
_LOG = [pain for pain in test_pains_of_the_log.PAINS if pain.fix]
_CONFIG = [pain for pain in test_pains_of_config.PAINS if pain.is_mended]


def _mend_and_look(store: Path, code: str, *, level: Level = Level.DEFAULT, only_known: bool = True) -> None:
    findings, _ = checked(store, level)
    (fix, *_others) = [finding.fix for finding in findings if finding.code == code]
    assert fix is not None
    program, *arguments = fix.split()
    assert program == "rmqctl"
    done = run(*arguments, *(["--yes"] if arguments[0] in ("recover", "truncate", "repair") else []), "-s", store)
    assert done.code in (0, 1), done.err
    after, _ = checked(store, level)
    assert code not in codes(after), after
    if only_known:
        assert not alarms(after), after


@pytest.mark.parametrize("pain", every(4, _FILES), ids=lambda pain: pain.name)
def test_files(pain: test_pains_of_files.Pain, golden_store: GoldenStore) -> None:
    store = golden_store(pain.base)
    pain.make(store)
    _mend_and_look(store, pain.code, level=pain.level)


@pytest.mark.parametrize("pain", every(4, _LOG), ids=lambda pain: pain.name)
def test_the_log(pain: test_pains_of_the_log.Pain, golden_store: GoldenStore) -> None:
    store = golden_store(pain.base)
    pain.make(store)
    _mend_and_look(store, pain.code, level=pain.level)


@pytest.mark.parametrize("pain", every(4, _CONFIG), ids=lambda pain: pain.name)
def test_config(pain: test_pains_of_config.Pain, golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    pain.make(store)
    _mend_and_look(store, pain.code)


@pytest.mark.parametrize("name", ["crc-flip-old", "crc-flip-last", "gap", "short-middle", "torn-zero-clean", "crash"])
def test_goldens(name: str, golden_store: GoldenStore) -> None:
    store = golden_store(name)
    findings, _ = checked(store)
    worst = next(finding for finding in findings if finding.severity.is_alarm)
    _mend_and_look(store, worst.code)


def _zero_checksum(store: Path) -> tuple[int, list[bytes]]:
    """Of the third message of the second file; its offset, and the bodies of the log."""
    bodies = [message.body for message in messages(store)]
    chosen = [message for message in messages(store) if message.physical_offset >= LOG_FILE_SIZE][2]
    put_field(store, chosen.physical_offset, "body_crc", 0)
    return chosen.physical_offset, bodies


@pytest.mark.parametrize("options", [(), ("--only", "RMQ-LOG-021")])
def test_a_checksum_of_0_costs_no_message(options: tuple[str, ...], golden_store: GoldenStore) -> None:
    """Queue and index were right all the time; a filler in the place of the message would lose it."""
    store = golden_store("clean")
    sound = tree_state(store)
    _, bodies = _zero_checksum(store)
    broken = tree_state(store)
    done = run("repair", *options, "-s", store, "--json")
    # what pointed at the message is left, until it is looked at again
    assert done.code == 1, done.err
    assert done.objects[0]["bridged"] == []
    assert tree_state(store) == sound
    assert [message.body for message in messages(store)] == bodies
    assert run("repair", "-s", store).code == 0
    assert not alarms(checked(store)[0])
    refused = run("undo", "-s", store)
    assert (refused.code, "this deletes 1 message; no terminal" in refused.err) == (exit_codes.REFUSED, True), (
        refused.err
    )
    assert run("undo", "-s", store, "--yes").code == 0
    assert tree_state(store) == broken


def test_a_checksum_of_0_under_one_of_the_frame(golden_store: GoldenStore) -> None:
    """Both are written if the one of the frame fits the 0; else nothing tells that the message is whole."""
    store = golden_store("propcrc")
    chosen = messages(store)[5]
    position = chosen.physical_offset + HEAD.offset("body_crc")
    put(store, position, bytes(4))
    frame = get(store, chosen.physical_offset, chosen.total_size)
    refused = run("repair", "--only", "RMQ-LOG-021", "-s", store)
    assert (refused.code, "not known to be whole" in refused.err) == (exit_codes.REFUSED, True)
    put(store, chosen.end - PROPERTY_CRC_SIZE, property_crc_text(frame_crc(frame[:-PROPERTY_CRC_SIZE])))
    _mend_and_look(store, "RMQ-LOG-021")
    assert messages(store)[5] == chosen


def test_what_stale_messages_leave(golden_store: GoldenStore) -> None:
    """The cut takes the old messages out of the log, and no good one with them."""
    store = golden_store("clean")
    end, good = test_old_messages.with_old_messages_behind(store)
    _mend_and_look(store, "RMQ-LOG-013")
    _, summary = checked(store)
    assert (summary.log_end, summary.messages) == (end, good)
