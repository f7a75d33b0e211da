"""Which stores a path, a list or a pattern names, and under what names others are attached."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rmqctl.formats.errors import NotAStoreError, UnreadableError, UsageError
from rmqctl.pipeline.sql.stores import (
    NamedStore,
    absolute,
    attached_stores,
    is_pattern,
    named_stores,
    options_by_schema,
    path_list,
)
from rmqctl.store.files import remote_file_system as file_system
from rmqctl.store.store_files import StoreFiles


@pytest.fixture
def brokers(tmp_path: Path) -> Path:
    for name in ("broker-a", "broker-b", "broker-c"):
        (tmp_path / name / "store").mkdir(parents=True)
        (tmp_path / name / "broker.conf").write_text(f"brokerName={name}\n", encoding="utf-8")
    (tmp_path / "broker-d").write_text("a file", encoding="utf-8")
    (tmp_path / ".broker-e" / "store").mkdir(parents=True)
    return tmp_path


def _found(folder: Path, *patterns: str) -> list[str]:
    found = named_stores([str(folder / pattern) for pattern in patterns])
    return [str(Path(one.path).relative_to(folder)) for one in found]


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("broker-*/store", ["broker-a/store", "broker-b/store", "broker-c/store"]),
        ("broker-*", ["broker-a", "broker-b", "broker-c"]),
        ("broker-[ac]/st?re", ["broker-a/store", "broker-c/store"]),
        ("broker-{c,a}/store", ["broker-c/store", "broker-a/store"]),
        ("{broker-a,.broker-*}/store", ["broker-a/store", ".broker-e/store"]),
        ("*/store", ["broker-a/store", "broker-b/store", "broker-c/store"]),
    ],
)
def test_a_pattern_stands_for_all_that_match(brokers: Path, pattern: str, wanted: list[str]) -> None:
    assert _found(brokers, pattern) == wanted


def test_what_is_kept_beside_a_store_is_none(brokers: Path) -> None:
    """The folder of changes, and what is put there while it is moved."""
    for name in ("broker-a.rmqctl", "broker-a.rmqctl-moving"):
        (brokers / name).mkdir()
    assert _found(brokers, "broker-*") == ["broker-a", "broker-b", "broker-c"]
    assert _found(brokers, "broker-*.rmqctl") == ["broker-a.rmqctl"]


def test_paths_keep_their_order(brokers: Path) -> None:
    assert _found(brokers, "broker-b/store", "broker-[ac]/store") == [
        "broker-b/store", "broker-a/store", "broker-c/store",
    ]  # fmt: skip


def test_what_is_really_called_so_is_no_pattern(tmp_path: Path) -> None:
    assert is_pattern(str(tmp_path / "a[1]"))
    (tmp_path / "a[1]").mkdir()
    assert not is_pattern(str(tmp_path / "a[1]"))
    assert _found(tmp_path, "a[1]") == ["a[1]"]


def test_nothing_matches(brokers: Path) -> None:
    with pytest.raises(NotAStoreError, match=r"nope-\*/store: no directory matches this pattern"):
        _found(brokers, "nope-*/store")


def test_a_folder_that_cannot_be_listed_is_not_left_out(brokers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "listdir", refused)
    with pytest.raises(UnreadableError, match="cannot be listed: Permission denied"):
        _found(brokers, "broker-*/store")


def test_a_store_counts_once(brokers: Path) -> None:
    (brokers / "link").symlink_to(brokers / "broker-a")
    with pytest.raises(UsageError, match="named twice"):
        _found(brokers, "broker-*/store", "link/store")


def test_each_has_its_broker_conf(brokers: Path) -> None:
    paths = [str(brokers / name / "store") for name in ("broker-a", "broker-b")]
    configs = [str(brokers / name / "broker.conf") for name in ("broker-a", "broker-b")]
    assert named_stores(paths, configs) == [
        NamedStore(paths[0], configs[0], "broker-a"), NamedStore(paths[1], configs[1], "broker-b"),
    ]  # fmt: skip
    # what is said of all is the name of none
    assert named_stores(paths, configs[:1]) == [NamedStore(path, configs[0]) for path in paths]
    assert named_stores(paths[:1], configs[:1]) == [NamedStore(paths[0], configs[0], "broker-a")]
    with pytest.raises(UsageError, match="there are 2 broker"):
        named_stores([str(brokers / "broker-*/store")], configs)


def test_the_log_of_one_store_is_not_read_for_several(brokers: Path) -> None:
    config = brokers / "broker-a" / "broker.conf"
    config.write_text("storePathCommitLog=/elsewhere\n", encoding="utf-8")
    paths = [str(brokers / name / "store") for name in ("broker-a", "broker-b")]
    with pytest.raises(UsageError, match="sets the commitlog directory of one store"):
        named_stores(paths, [str(config)])


@pytest.mark.parametrize("text", ["/a", "[]", "[1]", '["a", ""]', "[a", '{"a": 1}'])
def test_what_is_no_list(text: str) -> None:
    assert path_list(text) is None


def test_paths_are_seen_from_anywhere() -> None:
    here = str(Path.cwd())
    assert path_list(absolute(["a", "/b"])) == (f"{here}/a", "/b")
    assert absolute('["a"]') == json.dumps([f"{here}/a"])
    assert absolute("x-*") == f"{here}/x-*"


def test_stores_are_attached_by_name() -> None:
    assert attached_stores(["B=/data/b", "c = /data/c=d"]) == {"b": "/data/b", "c": "/data/c=d"}
    assert options_by_schema("/a", {"config": "/a.conf", "split_size": "1m"}, {"b": "/b"}) == {
        "main": {"config": "/a.conf", "split_size": "1m", "path": "/a"},
        "b": {"split_size": "1m", "path": "/b"},
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["/data/b"], "attaches no store"),
        (["b="], "attaches no store"),
        (["b-1=/b"], "cannot be the name"),
        (["1b=/b"], "cannot be the name"),
        (["main=/b"], "'main' is taken"),
        (["b=/b", "B=/c"], "'B' is taken"),
    ],
)
def test_names_that_cannot_be(given: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        attached_stores(given)


@pytest.fixture
def bucket(brokers: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A server whose only bucket has the brokers; the folders that it was asked for."""
    from fsspec.implementations.local import LocalFileSystem

    asked: list[str] = []

    class _Server(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
        def ls(self, path: str, detail: bool = False, **_: object) -> object:
            asked.append(path.removeprefix(str(brokers)))
            return super().ls(path, detail=detail)

    monkeypatch.setattr(
        file_system, "opened", lambda address: (_Server(), f"{brokers}{address.removeprefix('s3://bucket')}")
    )
    return asked


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("*/store", ["broker-a/store", "broker-b/store", "broker-c/store"]),
        ("broker-[ac]/st?re", ["broker-a/store", "broker-c/store"]),
        ("broker-{c,a}/store", ["broker-c/store", "broker-a/store"]),
        ("broker-{c,x}/store", ["broker-c/store"]),
        ("broker-?", ["broker-a", "broker-b", "broker-c"]),
    ],
)
def test_an_address_may_be_a_pattern(bucket: list[str], pattern: str, wanted: list[str]) -> None:
    address = f"s3://bucket/{pattern}"
    assert is_pattern(address)
    assert [one.path for one in named_stores([address])] == [f"s3://bucket/{name}" for name in wanted]
    assert len(bucket) <= 4


def test_an_address_that_matches_nothing_says_how_far_it_does(bucket: list[str]) -> None:
    with pytest.raises(NotAStoreError, match=r"s3://bucket/\*/stores: no directory matches") as raised:
        named_stores(["s3://bucket/*/stores"])
    assert raised.value.hint == "s3://bucket/* matches 3 directories, but stores is in none of them"
    with pytest.raises(NotAStoreError, match=r"no directory matches") as raised:
        named_stores(["s3://bucket/x*/y/z"])
    assert raised.value.hint == "check the path"
    with pytest.raises(UsageError, match="what follows :// cannot be a pattern"):
        named_stores(["s3://buck*/store"])


def test_a_server_that_does_not_answer_matches_not_nothing(bucket: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> object:
        raise PermissionError("403")

    monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.ls", refused)
    with pytest.raises(UnreadableError, match="s3://bucket: the server refuses to show it"):
        named_stores(["s3://bucket/*/store"])


def test_verbs_about_one_store_say_so_of_a_pattern(bucket: list[str], brokers: Path) -> None:
    for place in ("s3://bucket/*/store", str(brokers / "*" / "store")):
        with pytest.raises(NotAStoreError) as raised:
            StoreFiles(Path(place))
        assert raised.value.hint == "patterns name the stores of `rmqctl sql` and of Spark; name one store here"
