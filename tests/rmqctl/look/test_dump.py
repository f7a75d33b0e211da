"""`rmqctl dump`."""

from __future__ import annotations

from pathlib import Path

from rmqctl.output import outcome as exit_codes
from tests.goldens import truth
from tests.opened import store_path
from tests.rmqctl.looking import run


def log_file(name: str, start: int) -> Path:
    return store_path(name) / "commitlog" / f"{start:020d}"


def test_a_frame_field_by_field() -> None:
    done = run("dump", log_file("clean", 0), "-n", 1)
    assert done.code == exit_codes.OK
    lines = [line.split() for line in done.out.splitlines()]
    assert ["0", "4", "total_size", "223"] in lines
    assert ["28", "8", "physical_offset", "0"] in lines
    assert ["84", "4", "body_length", "19"] in lines
    assert ["108", "15", "topic", "topic-with-dash"] in lines


def test_json() -> None:
    done = run("dump", log_file("clean", 0), "-n", 3, "--json")
    rows = truth("clean").messages
    for found, row in zip(done.objects, rows[:3], strict=True):
        assert (found["kind"], found["offset"], found["size"]) == ("message", row["phyOffset"], row["storeSize"])
        fields = {field["name"]: field["value"] for field in found["fields"]}
        assert fields["topic"] == row["topic"]
        assert fields["store_timestamp"] == row["storeTimestamp"]


def test_hex_beside_the_fields_is_the_file() -> None:
    done = run("dump", log_file("clean", 0), "-n", 1, "--hex")
    shown = bytearray()
    for line in done.out.splitlines()[3:]:
        shown += bytes.fromhex(line[12:59])
    assert bytes(shown) == log_file("clean", 0).read_bytes()[:223]
    (found,) = run("dump", log_file("clean", 0), "-n", 1, "--hex", "--json").objects
    assert bytes.fromhex(found["hex"]) == bytes(shown)


def test_damage_is_shown_and_is_exit_code_1() -> None:
    done = run("dump", log_file("torn-zero", 2097152), "--at", 38144, "-n", 1)
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert "DAMAGED" in done.out
    assert "total_size" in done.out
    # what was not shown does not count
    assert run("dump", log_file("torn-zero", 2097152), "-n", 1).code == exit_codes.OK


def test_config_keeps_its_lines() -> None:
    done = run("dump", store_path("broker-real") / "config/delayOffset.json")
    assert done.code == exit_codes.OK
    assert '  "offsetTable":{1:71,14:0' in done.out.splitlines()
    (found,) = run("dump", store_path("broker-real") / "config/delayOffset.json", "--json").objects
    assert found["fields"][0]["value"]["offsetTable"] == {"1": 71, "14": 0}


def test_what_is_only_recognised(tmp_path: Path) -> None:
    log = tmp_path / "transaction/statetable"
    log.parent.mkdir(parents=True)
    log.write_bytes(bytes(range(100)))
    done = run("dump", log)
    assert done.code == exit_codes.REFUSED
    assert "transaction" in done.err
    assert "--hex" in done.err
    assert run("dump", log, "--hex", "-n", 1).code == exit_codes.OK


def test_no_such_file(tmp_path: Path) -> None:
    assert run("dump", tmp_path / "nothing").code == exit_codes.UNREADABLE
    assert run("dump", tmp_path).code == exit_codes.UNREADABLE
    assert run("dump").code == exit_codes.USAGE


def test_offsets_of_a_broadcasting_client(tmp_path: Path) -> None:
    path = tmp_path / "10.0.0.7@DEFAULT" / "g-bc" / "offsets.json"
    path.parent.mkdir(parents=True)
    sound = (
        '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":3,\n\t\t\t"topic":"T"\n\t\t}:17\n\t}\n}'
    )
    path.write_text(sound)
    done = run("dump", path)
    assert done.code == exit_codes.OK
    assert "g-bc in T queue 3 of broker-a: offset 17" in done.out
    assert "DAMAGED" not in done.out
    path.with_name("offsets.json.bak").write_text(sound)
    path.write_text(sound[:-4])
    done = run("dump", path)
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert "DAMAGED: the text ends at byte" in done.out
    assert "the client loads offsets.json.bak instead" in done.out
    rows = run("dump", path, "--json").objects
    assert {one["name"]: one["value"] for one in rows[0]["fields"]} == {
        "client_id": "10.0.0.7@DEFAULT",
        "group": "g-bc",
        "topic": "T",
        "broker_name": "broker-a",
        "queue_id": 3,
        "offset": 17,
    }
    assert rows[-1]["damage"]
    assert "offsets.json.bak" in rows[-1]["note"]
