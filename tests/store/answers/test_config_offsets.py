"""Whose offsets an entry of consumerOffset.json holds, which numbers count, and tables that cannot be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.store.answers.config_offsets import OffsetKey, offset_key, offsets_of, table_in
from rmqctl.store.config.config_files import why_unknown
from rmqctl.store.options import Events


@pytest.mark.parametrize(
    ("key", "owner"),
    [
        ("Orders@g", OffsetKey("Orders", "g", False)),
        ("%RETRY%g@g", OffsetKey("%RETRY%g", "g", False)),
        ("Orders@g@broadcast", OffsetKey("Orders", "g", True)),
        ("Orders", None),
        ("@g", None),
        ("Orders@", None),
        ("a@b@c@d", None),
        (7, None),
    ],
)
def test_whose_offsets(key: object, owner: OffsetKey | None) -> None:
    assert offset_key(key) == owner


def test_what_counts_as_an_offset() -> None:
    table = {0: 5, "1": 6, 2: -1, "-3": 1, "x": 1, 4: "5", 5: None, 6: True, "9" * 5000: 1, 1 << 31: 1}
    assert offsets_of(table) == {0: 5, 1: 6, 2: -1}


def test_tables(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    said: list[str] = []
    damage: list[CorruptError] = []

    def table() -> dict[object, object] | None:
        return table_in(path, "offsetTable", Events(damage=damage.append, note=said.append))

    assert table() is None
    assert (said, damage) == ([], [])
    path.with_name(path.name + ".bak").write_text('{"offsetTable":{"T@g":{0:1}}}')
    assert table() == {"T@g": {0: 1}}
    assert "from its backup" in said.pop()
    path.write_text('{"other":{}}')
    assert table() is None
    assert "holds no table offsetTable" in str(damage.pop())
    path.with_name(path.name + ".bak").unlink()
    path.write_text("{")
    assert table() is None
    assert len(damage) == 1
    assert said == []


@pytest.mark.parametrize(
    ("data", "backup", "expected"),
    [
        (None, None, "is not there"),
        (b"", None, "is empty"),
        (b" \n", b"", "is of white space alone, and its backup is empty"),
        (b"{", b"[]", "is damaged, and its backup does not hold its table"),
    ],
)
def test_why_a_table_is_not_known(tmp_path: Path, data: bytes | None, backup: bytes | None, expected: str) -> None:
    """Absent, empty, damaged and unreadable are four answers, and never one."""
    path = tmp_path / "consumerOffset.json"
    for one, content in ((path, data), (tmp_path / "consumerOffset.json.bak", backup)):
        if content is not None:
            one.write_bytes(content)
    assert why_unknown(path) == f"{path} {expected}"


def test_a_table_behind_a_directory_is_not_absent(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    path.mkdir()
    assert why_unknown(path) == f"{path} cannot be read"
