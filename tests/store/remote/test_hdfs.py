"""hdfs:// by Hadoop's own client where one is installed, by WebHDFS where none is, and what is said of either."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import UnreadableError
from rmqctl.store.files.remote_files import _shadows
from rmqctl.store.store_files import StoreFiles
from tests.opened import store_path
from tests.rmqctl.looking import run


@pytest.fixture
def hadoop_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """Arrow's file system of this machine in the place of Hadoop's; what it is opened with."""
    import fsspec
    from fsspec.implementations.arrow import ArrowFSWrapper
    from pyarrow.fs import LocalFileSystem

    (tmp_path / "lib" / "native").mkdir(parents=True)
    (tmp_path / "lib" / "native" / "libhdfs.so").touch()
    monkeypatch.setenv("HADOOP_HOME", str(tmp_path))
    monkeypatch.setenv("HADOOP_USER_NAME", "hive")
    given: list[dict[str, object]] = []

    def filesystem(kind: str, **options: object) -> object:
        given.append({"kind": kind, **options})
        return ArrowFSWrapper(LocalFileSystem())

    monkeypatch.setattr(fsspec, "filesystem", filesystem)
    return given


def test_hdfs_is_read_by_hadoops_client_where_there_is_one(hadoop_client: list[dict[str, object]]) -> None:
    store = store_path("crash")
    address = f"hdfs://names:8020{store}"
    try:
        for command in (["cat", "--json"], ["ls", "--json"], ["query", "-k", "hot"]):
            there, here = run(*command, "-s", address), run(*command, "-s", store)
            assert there.code == here.code, there
            assert there.out.replace(address, str(store)) == here.out
    finally:
        for one in tuple(_shadows.values()):
            one.close()
    assert {"kind": "hdfs", "host": "names", "port": 8020, "user": "hive", "skip_instance_cache": True} in hadoop_client


def test_hdfs_without_a_client_says_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqctl.store.files.remote_file_system.sleep", lambda _: None)
    monkeypatch.delenv("HADOOP_HOME", raising=False)
    monkeypatch.delenv("ARROW_LIBHDFS_DIR", raising=False)
    with pytest.raises(UnreadableError, match="asked 5 times") as raised:
        StoreFiles(Path("hdfs://127.0.0.1:8020/store"))
    assert "so WebHDFS was asked, at port 9870: write webhdfs://HOST:PORT" in str(raised.value.hint)


def test_a_client_of_hadoop_that_cannot_be_loaded_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libhdfs.so").write_bytes(b"no library")
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UnreadableError, match="hdfs://names/store: Hadoop's client cannot open it: ") as raised:
        StoreFiles(Path("hdfs://names/store"))
    assert "CLASSPATH" in str(raised.value.hint)
