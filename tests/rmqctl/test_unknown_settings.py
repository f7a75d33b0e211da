"""Keys of a broker.conf that no version reads, as words written wrong: a broker passes over them without a word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqctl.network.broker.config_keys import unknown_settings
from rmqctl.store.config.releases import RELEASES
from tests.goldens import GoldenStore, broker_conf
from tests.rmqctl.looking import run


def test_every_key_of_real_brokers_is_known() -> None:
    folder = Path(__file__).parents[1] / "golden" / "servers"
    texts = [path.read_text(encoding="ascii") for path in folder.glob("config-keys-*.txt")]
    lines = [line.split() for text in texts for line in text.splitlines()]
    keys = {key for of, key in lines if of == "broker"}
    assert len(keys) > 400
    assert unknown_settings(keys) == {}


@pytest.mark.parametrize(
    "name", ["clean", "broker-real", "v498s-clean", "v55-syncflush", "v55-lmq", "v55-nommap-crash"]
)
def test_no_key_that_a_real_broker_ran_with_is_unknown(name: str, tmp_path: Path) -> None:
    path = broker_conf(name, tmp_path)
    assert unknown_settings(line.partition("=")[0] for line in path.read_text().splitlines() if "=" in line) == {}


def test_wrong_words_are_told_with_what_they_are_like(golden_store: GoldenStore, tmp_path: Path) -> None:
    store, conf = golden_store("clean"), tmp_path / "broker.conf"
    conf.write_text("flushDiskTyp=SYNC_FLUSH\nnothingLikeIt=1\nbrokerName=a\ntieredStoreFilePath=/t\n")
    for verb in ("predict", "doctor"):
        done = run(verb, "-s", str(store), "-c", str(conf))
        assert "brokers pass over flushDiskTyp: no version has this key; did you mean flushDiskType?" in done.err
        assert "brokers pass over nothingLikeIt: no version has this key\n" in done.err
        assert "brokerName" not in done.err
        assert "tiered" not in done.err
    done = run("predict", "-s", str(store), "-c", str(conf), "--from", "5.5.0", "--to", "5.5.0", "--json")
    (typed, other) = json.loads(done.out)["settings"]
    assert (typed["setting"], typed["value"]) == ("flushDiskTyp", "SYNC_FLUSH")
    assert [one["detail"] for one in (typed, other)] == ["no version has it; like flushDiskType", "no version has it"]


def test_every_key_of_real_brokers_is_listed_with_its_default_and_effect() -> None:
    found = {row["key"]: row for row in run("config", "keys", "--json").objects}
    for version in RELEASES:
        text = (Path(__file__).parents[1] / "golden" / "servers" / f"config-keys-{version}.txt").read_text("ascii")
        named = {key for of, key in map(str.split, text.splitlines()) if of == "broker"}
        shown = {key for key, row in found.items() if version in row["releases"]}
        assert named - shown <= {key for key, row in found.items() if row["default"] is None}
        assert named <= found.keys()
    assert all(row["effect"] and row["counts_for"] for row in found.values())
    asked = run("config", "keys", "FLUSHdisk*", "dispatchCqThreads", "--json")
    assert [(row["key"], row["default"], row["counts_for"]) for row in asked.objects] == [
        ("dispatchCqThreads", "10", "nothing"),
        ("flushDiskType", "ASYNC_FLUSH", "writing"),
    ]


def test_keys_of_a_file_are_listed_with_their_values(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("flushDiskTyp=SYNC_FLUSH\nfileReservedTime=48\naclEnable=true\n")
    done = run("config", "keys", "-c", str(conf), "--json")
    assert [(row["key"], row["value"], row["counts_for"]) for row in done.objects] == [
        ("aclEnable", "true", "nothing"),
        ("fileReservedTime", "48", "cleaning"),
    ]
    assert "did you mean flushDiskType?" in done.err
    assert run("config", "keys", "-c", str(conf), "none*").code == 1
    assert run("config", "none*").code == 2
    assert run("config", "show", "-c", str(conf)).code == 2
