"""config.toml: what it may say, what comes before it, and where each value is said to come from."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.opened import store_path
from tests.rmqctl.looking import run


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(
        f"""profile = "prod"
[defaults]
tz = "Asia/Shanghai"
[profiles.prod]
store = "{store_path("clean")}"
namesrv = "127.0.0.1:1"
[profiles.prod.check]
quick = true
[profiles.prod."offsets set"]
anywhere = true
[profiles.other]
store = "{store_path("crash")}"
""",
        encoding="utf-8",
    )
    monkeypatch.setenv("RMQCTL_CONFIG", str(path))
    for variable in ("RMQCTL_STORE", "RMQCTL_PROFILE", "NAMESRV_ADDR"):
        monkeypatch.delenv(variable, raising=False)
    return path


def test_defaults_count_after_the_command_line_and_variables(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def store(*arguments: str) -> str:
        return str(run(*arguments, "info", "--json").objects[0]["path"])

    assert store() == str(store_path("clean"))
    assert store("--profile", "other") == str(store_path("crash"))
    monkeypatch.setenv("RMQCTL_PROFILE", "other")
    assert store() == str(store_path("crash"))
    monkeypatch.setenv("RMQCTL_STORE", str(store_path("gap")))
    assert store() == str(store_path("gap"))
    assert run("info", "-s", store_path("clean"), "--json").objects[0]["path"] == str(store_path("clean"))


def test_defaults_of_one_verb(file: Path) -> None:
    assert "does not read every message" in run("check").out
    # the command line wins over the file
    assert "does not read every message" not in run("check", "--full").out


def test_name_servers_are_for_verbs_that_need_one(file: Path) -> None:
    """`groups` goes on reading the store."""
    assert "the consumer groups are unknown" in run("groups").err
    assert "127.0.0.1:1" in run("cluster").err


def test_it_says_where_each_value_comes_from(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "b:2")
    found = {(row["verb"], row["option"]): (row["value"], row["source"]) for row in run("config", "--json").objects}
    assert found == {
        (None, "store"): (str(store_path("clean")), f"{file} [profiles.prod]"),
        (None, "tz"): ("Asia/Shanghai", f"{file} [defaults]"),
        (None, "namesrv"): ("b:2", "$NAMESRV_ADDR"),
        ("check", "quick"): ("quick", f"{file} [profiles.prod.check]"),
        ("offsets set", "anywhere"): (True, f"{file} [profiles.prod.offsets set]"),
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[defaults]\nyes = true", "'yes' is given on the command line only"),
        ("[defaults.recover]\nyes = true", "'yes' is given on the command line only"),
        ("[defaults]\nstor = 'x'", "no verb has an option 'stor'"),
        ("[defaults.info]\nfulll = true", "`info` has no option 'fulll'"),
        ("[defaults.chek]\nfull = true", "there is no verb 'chek'"),
        ("[default]\nstore = 'x'", "there is no such table"),
        ("profile = 'nope'", "there is no profile 'nope'"),
        ("profile = 3", "there is no profile '3'"),
        ("defaults = 3", "it is no table"),
        ("[defaults", "it cannot be read"),
        ("[defaults]\nstore = '\udcff'", "it cannot be read"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(file: Path, text: str, said: str) -> None:
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    done = run("config")
    assert (done.code, said in done.err, str(file) in done.err) == (2, True, True), done.err


def test_a_profile_without_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RMQCTL_CONFIG", str(tmp_path / "config.toml"))
    assert run("info", "-s", store_path("clean")).code == 0
    done = run("config")
    assert (done.code, "there is no" in done.err) == (1, True)
    done = run("--profile", "prod", "info", "-s", store_path("clean"))
    assert (done.code, "cannot be read" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('store = ["a", "b"]', "'store' must be text or a number"),
        ("limit = true", "'limit' must be text or a number"),
        ('topic = [["Orders"]]', "'topic' must be text or a number"),
        ("json = 1", "'json' must be true or false"),
        ("bytes = 2", "'bytes' must be true or false"),
        ("limit = 1.5", "'1.5' is not a valid integer"),
        (f"a = {'[' * 9000}", "it cannot be read"),
        (f"store = '{'x' * 70_000}'", "more than 65536 bytes"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_place(file: Path, line: str, said: str) -> None:
    file.write_text(f"[defaults]\n{line}\n", encoding="utf-8")
    done = run("cat", "-s", store_path("clean"))
    assert (done.code, said in done.err) == (2, True), done.err


@pytest.mark.parametrize(
    "lines",
    [
        'topic = "%DLQ%GroupA"',
        'topic = ["%DLQ%GroupA"]\nlimit = 2',
        "begin = 2026-01-01",
        "begin = 2026-01-01T00:00:00Z",
    ],
)
def test_values_are_taken_as_on_the_command_line(file: Path, lines: str) -> None:
    file.write_text(f"\ufeff[defaults]\n{lines}\n", encoding="utf-8")
    found = run("cat", "-s", store_path("clean"), "--json").objects
    assert found
    if "topic" in lines:
        assert {message["topic"] for message in found} == {"%DLQ%GroupA"}


def test_a_plain_lookup_takes_the_store_of_the_file(file: Path) -> None:
    """The one command line that is understood without the others' ways."""
    file.write_text(f'[defaults]\nstore = "{store_path("clean")}"\n', encoding="utf-8")
    found = json.loads(processes.run([sys.executable, "-m", "rmqctl", "query", "-o", "0", "--json"]).stdout)
    assert found["physical_offset"] == 0


def test_store_and_broker_conf_are_of_one_place(file: Path, tmp_path: Path) -> None:
    of_crash, of_gap = tmp_path / "crash.conf", tmp_path / "gap.conf"
    of_crash.write_text(f"storePathRootDir={store_path('crash')}\n", encoding="utf-8")
    of_gap.write_text(f"storePathRootDir={store_path('gap')}\nstorePathCommitLog=/nowhere\n", encoding="utf-8")
    file.write_text(f'[defaults]\nstore = "{store_path("clean")}"\nconfig = "{of_gap}"\n', encoding="utf-8")

    def path(*arguments: object) -> str:
        return str(run("info", "--json", "--quick", *arguments).objects[0]["path"])

    assert path("-c", of_crash) == str(store_path("crash"))
    log = run("info", "--json", "--quick", "-s", store_path("crash")).objects[0]["commitlog"]
    assert log["files"] > 0


def test_a_profile_with_a_point_in_its_name(file: Path) -> None:
    file.write_text('[profiles."x.check"]\nfull = true\n', encoding="utf-8")
    rows = run("--profile", "x.check", "config", "--json").objects
    assert {(row["verb"], row["source"]) for row in rows if row["option"] == "full"} == {
        (None, f"{file} [profiles.x.check]")
    }
