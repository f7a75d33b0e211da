"""`rmqctl check`."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.reports.check_report import CheckReport
from rmqctl.store.check.catalogue import Finding, catalogue
from tests.goldens import GoldenStore, broker_conf, golden, tree_state
from tests.opened import store_path
from tests.rmqctl.looking import run
from tests.store.check.breaking import messages, put_field

SHAPE = {
    "code",
    "severity",
    "file",
    "physical_offset",
    "topic",
    "queue_id",
    "expected",
    "found",
    "bytes",
    "messages",
    "data_lost",
    "message",
    "fix",
}


def test_nothing_to_say() -> None:
    done = run("check", "-s", store_path("clean"))
    assert (done.code, done.out) == (exit_codes.OK, "Nothing is wrong.\n")
    assert done.err == "0 errors, 0 warnings, 0 notices; checked 2500 messages in 9 commitlog files\n"


def test_for_people() -> None:
    done = run("check", "-s", store_path("crc-flip-last"))
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    fix = f"rmqctl recover --bridge -s {store_path('crc-flip-last')}"
    assert done.out.startswith(
        f"Something is wrong: 1 error, 2 warnings; messages are lost.\nnext: {fix}\n\n"
        "error   RMQ-LOG-005  body checksum wrong\n    commitlog/00000000000002097152 at 2106230: "
    )
    assert "(1 message, 268 bytes, lost)" in done.out
    assert f"rmqctl recover --bridge -s {store_path('crc-flip-last')}\n" in done.out
    assert done.err.startswith("1 error, ")


@pytest.mark.parametrize("name", ["clean", "crc-flip-third", "index-garbage"])
def test_a_quick_check_does_not_answer_for_what_it_did_not_look_at(name: str) -> None:
    done = run("check", "-s", store_path(name), "--quick")
    assert "Nothing is wrong" not in done.out
    assert done.out.startswith("The quick check found no damage")
    assert f"next: rmqctl check -s {store_path(name)}\n" in done.out


@pytest.mark.parametrize(
    ("emptied", "lost"),
    [("config/consumerOffset.json", "consumer offsets"), ("config/topics.json", "topic settings")],
)
def test_the_verdict_names_what_is_lost(emptied: str, lost: str, golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    (store / emptied).write_bytes(b"{\x00")
    for backup in store.glob(f"{emptied}.bak"):
        backup.unlink()
    done = run("check", "-s", store)
    assert f"; {lost} are lost.\n" in done.out
    assert run("check", "-s", store, "--summary", "--json").objects[-1]["summary"]["lost"] == [lost]


def test_neighbours_of_one_kind_have_one_heading() -> None:
    done = run("check", "-s", store_path("gap"))
    assert done.out.count("RMQ-CQ-009  ") == 1
    assert done.out.count("RMQ-CQ-009 (31)") == 1
    assert done.out.count("consumequeue/") == 5
    assert "    and 26 more: --all shows them\n" in done.out
    every = run("check", "-s", store_path("gap"), "--all")
    assert (every.out.count("consumequeue/"), "more:" in every.out) == (31, False)
    assert every.out.count("RMQ-CQ-009 (31)") == 1
    assert len(run("check", "-s", store_path("gap"), "--json").objects) == 33


def test_the_worst_comes_first() -> None:
    done = run("check", "-s", store_path("gap"))
    assert re.findall("^(error|warning|notice) ", done.out, re.MULTILINE) == ["error", "warning", "warning"]


def test_json_is_findings_only() -> None:
    done = run("check", "-s", store_path("gap"), "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert all(row.keys() == SHAPE for row in done.objects)
    first = done.objects[0]
    assert (first["code"], first["severity"], first["messages"]) == ("RMQ-FILE-004", "error", 304)
    assert first["file"] == "commitlog/00000000000001048576"
    assert first["fix"] == f"rmqctl recover --bridge -s {store_path('gap')}"


def test_a_mend_goes_by_the_same_configuration(tmp_path: Path) -> None:
    """Without it the commitlog would not be found."""
    store = golden("multipath", tmp_path)
    conf = broker_conf("multipath", tmp_path)
    (store / "consumequeue").rename(tmp_path / "gone")
    done = run("check", "-c", conf, "--json")
    command = f"rmqctl recover -s {store} -c {conf}"
    assert [row["fix"] for row in done.objects if row["fix"]] == [command]
    assert f"    {command}\n" in run("check", "-c", conf).out
    assert run(*command.split()[1:]).code == exit_codes.OK
    assert run("check", "-c", conf).code == exit_codes.OK


def test_two_messages_of_one_queue_offset_are_mended_as_it_says(tmp_path: Path) -> None:
    """salvage takes no -s, and needs a place for the new store."""
    store = golden("clean", tmp_path)
    queue = [one for one in messages(store) if (one.topic, one.queue_id) == ("TopicTest", 0)]
    put_field(store, queue[5].physical_offset, "queue_offset", queue[4].queue_offset)
    commands = {row["code"]: row["fix"] for row in run("check", "-s", store, "--json").objects}
    assert commands["RMQ-CQ-017"] == f"rmqctl salvage {store} --to {store}.salvaged --offsets renumber"
    assert run(*commands["RMQ-CQ-017"].split()[1:]).code == exit_codes.OK
    assert run("check", "-s", f"{store}.salvaged").code == exit_codes.OK


def test_nothing_is_offered_that_would_be_refused(tmp_path: Path) -> None:
    """Without the commitlog `recover` refuses, so nobody is sent there."""
    done = run("check", "-s", golden("log-gone-abort", tmp_path), "--json")
    assert {row["code"]: row["fix"] for row in done.objects} == {"RMQ-FILE-010": None, "RMQ-STATE-001": None}


def test_one_command_for_damage_and_what_points_at_it(tmp_path: Path) -> None:
    for name, command in (("crc-flip-last", "recover --bridge"), ("torn-zero-clean", "recover")):
        store = golden(name, tmp_path)
        done = run("check", "-s", store, "--json")
        assert {row["fix"] for row in done.objects} == {f"rmqctl {command} -s {store}"}
        assert run(*command.split(), "-s", store).code == exit_codes.OK
        assert run("check", "-s", store).code == exit_codes.OK


def test_what_was_expected_and_found_is_printed() -> None:
    done = run("check", "-s", store_path("cq-truncated"))
    assert "(72182 bytes; expected offset 11269 size 215 code 26572474, found zeros)" in done.out


def test_json_of_a_sound_store_is_empty() -> None:
    done = run("check", "-s", store_path("clean"), "--json")
    assert (done.code, done.out) == (exit_codes.OK, "")


def test_summary_is_the_last_object() -> None:
    done = run("check", "-s", store_path("crc-flip-old"), "--json", "--summary")
    *findings, last = done.objects
    summary = last["summary"]
    assert last.keys() == {"summary"}
    assert summary["errors"] + summary["warnings"] + summary["notices"] == len(findings)
    assert summary["codes"] == dict.fromkeys(sorted(row["code"] for row in findings), 1)
    assert (summary["complete"], summary["data_lost"], summary["messages"]) == (True, True, 2499)
    assert summary["ranges"] == [{"begin": 0, "end": 2359296}]


def test_summary_for_people() -> None:
    done = run("check", "-s", store_path("clean"), "--summary")
    assert "level" in done.out
    assert "2135612" in done.out


def test_csv() -> None:
    done = run("check", "-s", store_path("stray-file"), "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(done.out))
    assert set(row) == SHAPE
    assert (row["code"], row["file"]) == ("RMQ-FILE-001", "commitlog/notes.txt")


def test_notices_alone_are_no_damage() -> None:
    done = run("check", "-s", store_path("longtopic-toolong"), "--json")
    assert done.code == exit_codes.OK
    assert {row["severity"] for row in done.objects} == {"notice"}
    assert run("check", "-s", store_path("longtopic-toolong"), "--json", "--severity", "warning").out == ""


def test_severity_hides_but_counts() -> None:
    done = run("check", "-s", store_path("crash"), "--severity", "error")
    assert (done.code, done.out) == (
        exit_codes.DAMAGE_OR_NOTHING,
        "Something is wrong: 2 warnings, 3 notices; nothing is lost.\n",
    )
    assert "2 warnings" in done.err


def test_quick_and_full() -> None:
    done = run("check", "-s", store_path("clean"), "--quick")
    assert done.code == exit_codes.OK
    assert "not every message" in done.err
    done = run("check", "-s", store_path("clean"), "--full", "--json")
    assert done.code == exit_codes.OK
    assert [row["code"] for row in done.objects] == ["RMQ-LOG-017"]


def test_with_a_configuration(tmp_path: Path) -> None:
    store = golden("multipath", tmp_path)
    assert run("check", "-c", broker_conf("multipath", tmp_path)).code == exit_codes.OK
    done = run("check", "-s", store, "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert done.objects[0]["code"] == "RMQ-FILE-010"


def test_fail_fast() -> None:
    done = run("check", "-s", store_path("gap"), "--json", "--fail-fast")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert len(done.objects) == 1
    assert "stopped at the first" in done.err


def test_bit_by_bit(tmp_path: Path) -> None:
    store = golden("clean", tmp_path)
    before = tree_state(store)
    done = run("check", "-s", store, "--max-duration", "0s", "--resume")
    assert done.code == exit_codes.OK
    assert "stopped before offset 262144, the time was over" in done.err
    state = tmp_path / "clean.check.json"
    assert json.loads(state.read_text(encoding="utf-8"))["next_offset"] == 262144
    done = run("check", "-s", store, "--resume", "--summary", "--json")
    (last,) = done.objects
    assert last["summary"]["ranges"] == [{"begin": 262144, "end": 2359296}]
    assert json.loads(state.read_text(encoding="utf-8"))["passes"] == 1
    assert tree_state(store) == before


def test_state_never_goes_into_the_store(tmp_path: Path) -> None:
    store = golden("clean", tmp_path)
    before = tree_state(store)
    done = run("check", "-s", store, "--state", store / "commitlog" / "state")
    assert done.code == exit_codes.USAGE
    assert "inside the store" in done.err
    assert tree_state(store) == before


@pytest.mark.parametrize(
    "options",
    [
        ("--subset", "0/7"),
        ("--subset", "x"),
        ("--max-duration", "soon"),
        ("--max-duration", "-5"),
        ("--max-duration", "nan"),
        ("--explain", "RMQ-NO-1"),
    ],
)
def test_wrong_usage(options: tuple[str, str]) -> None:
    done = run("check", "-s", store_path("clean"), *options)
    assert (done.code, done.out) == (exit_codes.USAGE, "")
    assert options[1] in done.err


def test_subset() -> None:
    done = run("check", "-s", store_path("crc-flip-old"), "--subset", "2/9", "--json")
    assert "share 2/9" in done.err
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert run("check", "-s", store_path("crc-flip-old"), "--subset", "3/9").code == exit_codes.OK


@pytest.mark.parametrize("code", catalogue())
def test_explain(code: str) -> None:
    done = run("check", "--explain", code.lower(), "--json")
    assert done.code == exit_codes.OK
    (entry,) = done.objects
    assert entry["code"] == code
    assert entry["meaning"] == catalogue()[code].meaning


def test_no_store(tmp_path: Path) -> None:
    assert run("check", "-s", tmp_path / "nothing").code == exit_codes.UNREADABLE


def test_hostile_names_do_not_reach_the_terminal(tmp_path: Path) -> None:
    store = golden("clean", tmp_path)
    (store / "commitlog" / "\x1b[31mred\u202e").touch()
    (store / "consumequeue" / "T\x1b[2J").mkdir()
    (store / "consumequeue" / "T\x1b[2J" / "0").mkdir()
    (store / "consumequeue" / "T\x1b[2J" / "0" / "\x07").write_bytes(b"x")
    for options in ((), ("--json",), ("--format", "csv")):
        done = run("check", "-s", store, *options)
        assert done.code == exit_codes.DAMAGE_OR_NOTHING
        assert "red" in done.out
        assert not {"\x1b", "\u202e", "\x07"} & set(done.out + done.err)


def test_ctrl_c_says_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was covered until then counts: the next check goes on behind it."""
    store = golden("crc-flip-third", tmp_path)
    monkeypatch.setattr("rmqctl.store.check.check.SAVED_EVERY_S", 0.0)
    original = CheckReport._take

    def interrupted(self: CheckReport, finding: Finding) -> None:
        original(self, finding)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(CheckReport, "_take", interrupted)
        done = run("check", "-s", store, "--resume")
    assert done.code == exit_codes.INTERRUPTED
    assert "RMQ-LOG-005" in done.out  # what was found until then
    assert "the next one with this state goes on at offset 1572864" in done.err
    done = run("check", "-s", store, "--resume", "--summary", "--json")
    assert done.objects[-1]["summary"]["ranges"] == [{"begin": 1572864, "end": 2359296}]
    assert "RMQ-LOG-005" in done.objects[-1]["summary"]["codes"]


def test_what_has_to_be_decided_comes_first(tmp_path: Path) -> None:
    """With two files of the same offsets nothing that changes the log would run."""
    store = golden("clean", tmp_path)
    log = store / "commitlog"
    (log / f"{3 * 262144:020d}").rename(log / f"{3 * 262144 + 100:020d}")
    done = run("check", "-s", store)
    assert "first decide about RMQ-FILE-005: until then what changes the log is refused" in done.out
    assert run("recover", "--bridge", "-s", store).code == exit_codes.REFUSED
    assert run("doctor", "-s", store, "--json").objects[0]["next"] == f"rmqctl check -s {store}"
    assert "decide" not in run("check", "-s", store_path("gap")).out


def test_messages_of_a_missing_file_are_lost_for_a_quick_look_too(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    (store / "commitlog" / "00000000000001048576").unlink()
    lost = [
        [row["data_lost"] for row in run("check", "-s", store, *level, "--json").objects if row["code"] == "RMQ-CQ-009"]
        for level in ((), ("--quick",))
    ]
    assert all(level and all(level) for level in lost), lost
