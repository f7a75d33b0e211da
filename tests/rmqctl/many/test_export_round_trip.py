"""export and append --from give a store back byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from tests.goldens import broker_conf, truth
from tests.opened import store_path
from tests.quick import goldens_of
from tests.rmqctl.looking import run

pytest.importorskip("pyarrow")

GOLDENS = ("clean", "v4-clean", "features", "v4-features", "propcrc", "longtopic", "lmq", "broker-real")


def config_of(name: str, folder: Path) -> list[object]:
    """Settings of the golden's broker, without its own place and with the file sizes that it has."""
    path = broker_conf(name, folder)
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("storePath")]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return ["-c", path]


def log_bytes(store: Path) -> bytes:
    """The commitlog without the zeros behind its last message."""
    return b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir())).rstrip(b"\0")


def queue_bytes(store: Path) -> dict[str, bytes]:
    """All consume queues, without the zeros behind their last units."""
    below = store / "consumequeue"
    return {
        str(path.relative_to(below)): path.read_bytes().rstrip(b"\0") for path in below.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "jsonl"])
@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_a_store_comes_back_byte_for_byte(name: str, suffix: str, tmp_path: Path) -> None:
    source = store_path(name)
    exported = tmp_path / f"all.{suffix}"
    done = run("export", "-s", source, exported, "--json")
    assert done.code == exit_codes.OK, done.err
    assert done.objects[0]["messages"] == len(truth(name).messages)
    copy = tmp_path / "copy"
    config = config_of(name, tmp_path)
    done = run("append", "-s", copy, *config, "--create", "--from", exported, "--as-stored", "--json")
    assert done.code == exit_codes.OK, done.err
    assert done.objects[0]["stored"] == len(truth(name).messages)
    assert log_bytes(copy) == log_bytes(source)
    assert queue_bytes(copy) == queue_bytes(source)
