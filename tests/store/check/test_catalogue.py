"""The catalogue of findings: complete, consistent, and every code of it can be found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rmqctl.main import VERBS
from rmqctl.store.check.catalogue import FAMILIES, Finding, Kind, Severity, catalogue
from tests.generated.documents import findings_document

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("kind", catalogue().values(), ids=catalogue())
def test_every_kind_says_all(kind: Kind) -> None:
    assert kind.family in FAMILIES
    assert kind.title == kind.title.strip()
    assert not kind.title.endswith(".")
    for text in (kind.meaning, kind.causes, kind.action):
        assert text.endswith("."), text
    assert len(set(kind.issues)) == len(kind.issues)
    for issue in kind.issues:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", issue), issue


@pytest.mark.parametrize("kind", [kind for kind in catalogue().values() if kind.fix], ids=lambda kind: kind.code)
def test_fixes_are_commands(kind: Kind) -> None:
    assert kind.command is not None
    program, verb, *flags = kind.command.split()
    assert program == "rmqctl"
    assert verb in VERBS
    if verb == "repair":
        assert flags == ["--only", kind.code]


def test_every_code_is_made_somewhere() -> None:
    sources = [path for path in (ROOT / "store/check").rglob("*.py") if path.name != "catalogue.py"]
    made = {code for path in sources for code in re.findall(r"RMQ-[A-Z]+-\d{3}", path.read_text(encoding="utf-8"))}
    assert made == set(catalogue())


def test_every_code_is_found_in_a_test() -> None:
    sources = (ROOT / "tests").rglob("test_*.py")
    tested = {code for path in sources for code in re.findall(r"RMQ-[A-Z]+-\d{3}", path.read_text(encoding="utf-8"))}
    assert not set(catalogue()) - tested


def test_the_document_has_every_code() -> None:
    text = findings_document()
    rows = re.findall(r"^\| (RMQ-\S+) \| (\w+) \| \*\*(.+?)\*\*: (.+?) \| (.+) \|$", text, re.MULTILINE)
    assert [code for code, *_ in rows] == list(catalogue())
    meanings: dict[str, str] = {}
    for (code, severity, title, meaning, fix), kind in zip(rows, catalogue().values(), strict=True):
        meanings[code] = meanings.get(meaning.removeprefix("as "), meaning)
        assert (severity, title) == (kind.severity, kind.title)
        # the beginning of it; `check --explain` has all
        assert kind.meaning.startswith(meanings[code].replace("\\|", "|"))
        assert meanings[code].endswith(".")
        named = f"rmqctl {fix.strip('`')}"
        assert kind.command in (named, f"{named} --only {code}") or (
            kind.command is None and kind.action.startswith(fix)
        )
    assert (ROOT / "docs/findings.md").read_text(encoding="utf-8") == text


def test_a_finding_has_its_kind() -> None:
    finding = Finding("RMQ-FILE-001", "x", Path("/s/commitlog/a"), bytes=3)
    assert (finding.severity, finding.fix) == (Severity.ERROR, "rmqctl repair --only RMQ-FILE-001")
    assert finding.row() == {
        "code": "RMQ-FILE-001",
        "severity": "error",
        "message": "x",
        "file": "/s/commitlog/a",
        "physical_offset": None,
        "topic": None,
        "queue_id": None,
        "expected": None,
        "found": None,
        "bytes": 3,
        "messages": None,
        "data_lost": False,
        "fix": "rmqctl repair --only RMQ-FILE-001",
    }
    assert Finding("RMQ-FILE-001", "x", fix="rmqctl undo").fix == "rmqctl undo"
    with pytest.raises(KeyError):
        Finding("RMQ-FILE-999", "x")


@pytest.mark.parametrize("code", ["RMQ-FILE-1", "FILE-001", "RMQ-file-001", "RMQ-FILE-001x"])
def test_codes_have_one_form(code: str) -> None:
    with pytest.raises(ValueError, match="RMQ-FAMILY-NNN"):
        Kind(code, Severity.ERROR, "t", "m.", "c.", "a.")
