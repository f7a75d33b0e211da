"""docs/schemas is what commands print: scripts and other programs may rely on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from rmqctl.main import cli, every_action
from tests.goldens import GOLDENS, OF_5_5
from tests.processes import ROOT
from tests.quick import sample
from tests.schemas.__main__ import FOLDER, VERSION
from tests.schemas.printing import MAKERS, WITHOUT, asked_of_servers, changes, looks, printed, printed_by_changes
from tests.schemas.shapes import DIALECT, shape_of


def _checked(found: Any) -> dict[str, int]:
    """How many values of each schema there were; every one has to keep to it."""
    seen: dict[str, int] = {}
    for name, values in found:
        validator = Draft202012Validator(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))
        for value in values:
            wrong = [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(value)]
            assert wrong == [], f"{name}: `make schemas` writes docs/schemas anew where a field is new"
        seen[name] = seen.get(name, 0) + len(values)
    return seen


@pytest.mark.parametrize("name", sample((*GOLDENS, *OF_5_5), ("features", "crc-flip-third")))
def test_looks_print_what_the_schemas_say(name: str, tmp_path: Path) -> None:
    seen = _checked(printed(name, tmp_path))
    assert seen["info"] == 2
    assert sum(seen.values()) > 30


def test_changes_print_what_the_schemas_say(tmp_path: Path) -> None:
    seen = _checked(printed_by_changes(tmp_path))
    assert [name for name, count in seen.items() if not count and name != "error"] == []


@pytest.mark.parametrize("by", [make for make in MAKERS if make is not printed_by_changes])
def test_servers_and_features_are_told_of_as_the_schemas_say(by: Any, tmp_path: Path) -> None:
    seen = _checked(by(tmp_path))
    assert [name for name, count in seen.items() if not count and name != "error"] == []


def test_every_verb_that_prints_json_has_a_schema() -> None:
    store = Path("store")
    asked = [*looks(store, "clean"), *changes(store), *asked_of_servers("name:9876")]
    asked.append(("acl", ["acl"]))
    words = {tuple(map(str, command[:count])) for _, command in asked for count in (1, 2)}
    missing = {verb for verb in every_action(cli) if tuple(verb.split()) not in words}
    assert missing == WITHOUT.keys()


def test_schemas_are_sound_and_of_one_version() -> None:
    for path in sorted(FOLDER.iterdir()):
        schema = json.loads(path.read_text(encoding="utf-8"))
        Draft202012Validator.check_schema(schema)
        assert schema["$schema"] == DIALECT
        assert schema["$id"] == f"urn:rmqctl:{VERSION}:{path.stem}"
    assert "docs/schemas" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_shape_tells_what_is_always_there_from_what_is_not() -> None:
    shape = shape_of([{"a": 1, "m": {"x": 1}, "n": None}, {"a": None, "b": [1.5, 2], "m": {"y": 2}, "n": None}])
    assert shape.schema(frozenset(["m"])) == {
        "type": "object",
        "properties": {
            "a": {"type": ["integer", "null"]},
            "b": {"type": "array", "items": {"type": "number"}},
            "m": {"type": "object", "additionalProperties": {"type": "integer"}},
            "n": {},
        },
        "required": ["a", "m", "n"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    "value", [{"a": "text", "m": {}}, {"m": {}}, {"a": 1, "m": {}, "new": 1}, {"a": 1, "m": {"x": "y"}}]
)
def test_what_is_not_so_is_found(value: dict[str, Any]) -> None:
    """The check of these tests can fail: another type, a missing field, a new one, another value of a map."""
    shape = shape_of([{"a": 1, "m": {"x": 1}}])
    assert list(Draft202012Validator(shape.schema(frozenset(["m"]))).iter_errors(value))
