"""`rmqctl offsets delete`: the offsets of a group or of all orphans go, and an undo brings them back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.config_json import format_config_json, parse_config_json
from rmqctl.output import outcome as exit_codes
from tests.goldens import GoldenStore, tree_state
from tests.rmqctl.looking import run

GROUP = "g-events"


def _content(store: Path, name: str = "consumerOffset.json") -> dict[Any, Any]:
    found = parse_config_json((store / "config" / name).read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


@pytest.fixture
def store(golden_store: GoldenStore) -> Path:
    """A store whose subscriptionGroup.json no longer names g-events."""
    made = golden_store("broker-real")
    content = _content(made, "subscriptionGroup.json")
    del content["subscriptionGroupTable"][GROUP]
    (made / "config" / "subscriptionGroup.json").write_text(format_config_json(content), encoding="utf-8")
    return made


def test_a_group_goes_and_comes_back(store: Path) -> None:
    before, table = tree_state(store), _content(store)["offsetTable"]
    shown = run("offsets", "delete", "-s", store, "-g", GROUP, "--dry-run", "--json")
    assert shown.code == exit_codes.OK, shown.err
    assert tree_state(store) == before
    done = run("offsets", "delete", "-s", store, "-g", GROUP, "--json")
    assert done.code == exit_codes.OK, done.err
    (report,) = done.objects
    assert (
        report["changed"]
        == shown.objects[0]["changed"]
        == sum(len(queues) for key, queues in table.items() if key.endswith(f"@{GROUP}"))
    )
    after = _content(store)
    assert after["offsetTable"] == {key: row for key, row in table.items() if not key.endswith(f"@{GROUP}")}
    assert GROUP not in after.get("groupTopicMap", {})
    assert run("groups", "-s", store, "-g", GROUP).code == exit_codes.DAMAGE_OR_NOTHING
    assert run("undo", "-s", store, "-y").code == exit_codes.OK
    assert tree_state(store) == before


def test_one_queue_goes_alone(store: Path) -> None:
    table = _content(store)["offsetTable"]
    assert run("offsets", "delete", "-s", store, "-g", GROUP, "-t", "Events", "-q", 3).code == exit_codes.OK
    wanted = {**table, f"Events@{GROUP}": {q: o for q, o in table[f"Events@{GROUP}"].items() if q != 3}}
    assert _content(store)["offsetTable"] == wanted


def test_orphans_are_marked_and_go_in_one_command(store: Path) -> None:
    rows = run("groups", "-s", store, "--json").objects
    marked = {row["group"] for row in rows if "subscriptionGroup.json does not name the group" in row["detail"]}
    assert marked == {GROUP}
    table = _content(store)["offsetTable"]
    done = run("offsets", "delete", "-s", store, "--orphans", "--json")
    assert done.code == exit_codes.OK, done.err
    assert {row["group"] for row in done.objects[0]["rows"]} == {GROUP}
    assert _content(store)["offsetTable"].keys() == {key for key in table if not key.endswith(f"@{GROUP}")}
    again = run("offsets", "delete", "-s", store, "--orphans")
    assert (again.code, "nothing has to be changed" in again.err) == (exit_codes.OK, True)


def test_orphans_cannot_be_told_apart_without_the_configuration(store: Path) -> None:
    for name in ("subscriptionGroup.json", "subscriptionGroup.json.bak"):
        (store / "config" / name).unlink()
    before = tree_state(store)
    done = run("offsets", "delete", "-s", store, "--orphans")
    assert done.code == exit_codes.REFUSED
    assert "rmqctl offsets delete -g GROUP" in done.err
    assert tree_state(store) == before


def test_what_is_not_there_or_not_said(store: Path) -> None:
    assert run("offsets", "delete", "-s", store, "-g", "nobody").code == exit_codes.DAMAGE_OR_NOTHING
    for wrong in ((), ("-g", GROUP, "--orphans"), ("-g", GROUP, "-q", "1")):
        assert run("offsets", "delete", "-s", store, *wrong).code == exit_codes.USAGE
