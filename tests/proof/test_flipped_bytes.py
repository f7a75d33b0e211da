"""Every changed byte is reported, or published as one that nothing covers; and that this can fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.store.check.catalogue import Finding
from rmqctl.store.check.index import IndexCheck
from rmqctl.store.index.index_file import IndexEntry, IndexFile
from tests.proof import flipped_bytes
from tests.proof.flipped_bytes import HOW, Subject, look_for
from tests.proof.proving import assert_proved
from tests.proof.small_store import Used
from tests.proof.uncovered import UNCOVERED, table

_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return flipped_bytes.subject_in(tmp_path_factory.mktemp("subject"))


@pytest.mark.timeout(1800)
def test_every_changed_byte_is_reported_or_published(tmp_path: Path) -> None:
    assert_proved("flipped-bytes", tmp_path)


def test_the_published_list_is_this_one() -> None:
    assert "\n".join(table()) in (_ROOT / "docs/durability.md").read_text(encoding="utf-8")


def test_every_published_field_is_there_and_can_change_unseen(subject: Subject) -> None:
    """Or it would excuse nothing, and hide what is reported once it is not any more."""
    for place in UNCOVERED:
        fields = [used for used in subject.used if (used.structure, used.field) == place]
        assert fields, place
        changes = ((used, at, how) for used in fields for at in reversed(_places(used)) for how in HOW)
        assert any(_is_unseen(subject, *change) for change in changes), place


def _places(used: Used) -> range:
    return range(used.offset, used.offset + used.size)


def _is_unseen(subject: Subject, used: Used, at: int, how: str) -> bool:
    with flipped_bytes.changed(subject.root / used.file, at, how) as is_changed:
        return is_changed and not flipped_bytes._findings(subject.root) - subject.findings


def test_it_fails_where_a_check_looks_away(subject: Subject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nothing(*_: object) -> Iterator[Finding]:
        yield from ()

    used = next(used for used in subject.used if used.structure == "index slot")
    flipped_bytes._try_one(subject, used, used.offset + 3, "bit0", tmp_path)
    monkeypatch.setattr(IndexCheck, "finish", nothing)
    with pytest.raises(AssertionError, match="check says nothing"):
        flipped_bytes._try_one(subject, used, used.offset + 3, "bit0", tmp_path)


def test_it_fails_where_damage_is_told_as_absence(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(_: IndexFile, entry: IndexEntry, __: int) -> bool:
        return entry.key_hash >= 0

    used = next(used for used in subject.used if (used.structure, used.field) == ("index entry", "key_hash"))
    with flipped_bytes.changed(subject.root / used.file, used.offset + 3, "bit0"):
        assert not list(look_for(subject, used, used.offset + 3))
        monkeypatch.setattr(IndexFile, "belongs", trusting)
        assert list(look_for(subject, used, used.offset + 3)) == ["by key: not there"]
