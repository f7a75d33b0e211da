"""The vocabulary check finds what style bans in every kind of text, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import vocabulary
from tests.vocabulary import ALLOWED, found_in, hits, main


@pytest.mark.parametrize(
    "text", ["Nobody reads it.", "It is\ntold of.", "good messages behind the end", "in each room"]
)
def test_a_banned_word_is_found(text: str) -> None:
    assert len(list(found_in("help", "place", text))) == 1


@pytest.mark.parametrize(
    "text", ["`rocketmq.told`", "```\nwhatever\n```", "--strategy machine-room", "bedrooms", "gave-up"]
)
def test_code_and_other_words_do_not_count(text: str) -> None:
    assert list(found_in("help", "place", text)) == []


def test_documents_help_and_findings_have_none() -> None:
    assert [hit for hit in hits() if hit.kind in ("document", "help", "finding")] == []
    assert [ALLOWED[kind] for kind in ("document", "help", "finding")] == [0, 0, 0]


def test_docstrings_and_messages_of_a_module_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(
        '"""What nobody told."""\n\n\ndef f() -> str:\n    return f"there is no room: {ast}"\n', encoding="utf-8"
    )
    found = [(hit.kind, hit.place, hit.word) for hit in vocabulary._source(path)]
    assert found == [
        ("docstring", "module.py:1", "nobody"),
        ("docstring", "module.py:1", "told"),
        ("message", "module.py:5", "room"),
    ]


def test_more_than_allowed_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(vocabulary, "hits", lambda: found_in("help", "x", "anew"))
    assert main([]) == 1
    assert "1 banned words in help texts, 0 are allowed" in capsys.readouterr().err
    monkeypatch.setattr(vocabulary, "ALLOWED", {"help": 1})
    assert main([]) == 0
