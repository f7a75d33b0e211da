"""`rmqctl offsets lint`: nothing in what a broker wrote, and everything that can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rmqctl import exit_codes
from tests.goldens import GoldenStore
from tests.opened import store_path
from tests.rmqctl.looking import run

OF = ("-g", "g-retry", "-t", "Events")
TOPIC = "Events"
FILE = "config/consumerOffset.json"


def _lint(store: Path) -> set[tuple[str, str, Any]]:
    return {
        (row["problem"], row["topic"] or Path(row["file"]).name, row["queue_id"])
        for row in run("offsets", "lint", "-s", store, "--json").objects
    }


def test_lint_finds_nothing_in_what_a_broker_wrote() -> None:
    done = run("offsets", "lint", "-s", store_path("broker-real"))
    assert (done.code, done.out, done.err) == (exit_codes.OK, "", "nothing is wrong with the offsets\n")


def test_lint_finds_everything(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    table = {
        "Events@g-events": {"0": 24, "1": 9999, "2": -1, "3": "x", "x": 1, "77": 4},
        "Nowhere@g-pay": {"0": 1},
        "Events@g-unknown": {"0": 1},
        "%RETRY%g-gone@g-gone": {"0": 0},
        "%RETRY%g-retry@g-pay": {"0": 0},
        "no key": {"0": 1},
        "Pay@g-pay": [1],
    }
    (store / FILE).write_text(
        json.dumps({"dataVersion": {"counter": -1, "stateVersion": 0, "timestamp": 1 << 60}, "offsetTable": table}),
        encoding="utf-8",
    )
    (store / "config/delayOffset.json").write_text('{"offsetTable":{1:9999,19:1,0:3}}', encoding="utf-8")
    (store / "config/delayOffset.json.bak").write_text("", encoding="utf-8")
    found = _lint(store)
    assert found >= {
        ("backup-differs", TOPIC, 0),
        ("past-end", TOPIC, 1),
        ("negative", TOPIC, 2),
        ("malformed-offset", TOPIC, 3),
        ("malformed-entry", TOPIC, None),
        ("unknown-queue", TOPIC, 77),
        ("unknown-topic", "Nowhere", None),
        ("unknown-group", TOPIC, None),
        ("retry-without-group", "%RETRY%g-gone", None),
        ("retry-of-another", "%RETRY%g-retry", None),
        ("malformed-key", "consumerOffset.json", None),
        ("malformed-entry", "Pay", None),
        ("data-version", "consumerOffset.json", None),
        ("backup-differs", "Orders", 3),
        ("past-end", "SCHEDULE_TOPIC_XXXX", 0),
        ("unknown-level", "SCHEDULE_TOPIC_XXXX", None),
        ("malformed-entry", "SCHEDULE_TOPIC_XXXX", None),
        ("missing", "delayOffset.json.bak", None),
    }
    assert run("offsets", "lint", "-s", store).code == exit_codes.DAMAGE_OR_NOTHING
    # a broker does not load such a file, so nothing is changed in it
    done = run("offsets", "set", "-s", store, *OF, "-q", 0, "-o", 1)
    assert (done.code, "offsets lint" in done.err) == (exit_codes.DAMAGE_OR_NOTHING, True)
    (store / FILE).write_text("{", encoding="utf-8")
    assert ("damaged", "consumerOffset.json", None) in _lint(store)
