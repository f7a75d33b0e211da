"""`rmqctl report`: its numbers are those of the other verbs, and the page holds nothing that is not its own."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rmqctl.opening import StoreLocation
from rmqctl.output import outcome as exit_codes
from rmqctl.pipeline import engine
from rmqctl.report import numbers
from rmqctl.report.numbers import ReportScope
from rmqctl.store import Message, MessageStore
from tests.browser import opened_page
from tests.goldens import GoldenStore, tree_state
from tests.opened import store_path
from tests.rmqctl.looking import run

pytest.importorskip("rmqctl.report.page")
LARGEST = 3 << 20
NOW = 1_800_000_000_000
HOSTILE = "<img src=x onerror=alert(1)>'\"&<!--\u202e\x1b[31m"
"""The name of a topic."""
WORSE = f"</script></code>{HOSTILE}"


def reported(folder: Path, *arguments: object, code: int = exit_codes.OK) -> tuple[str, list[dict[str, Any]]]:
    """Run it; the page, and the numbers of each store in it."""
    file = folder / "report.html"
    done = run("report", *arguments, "-o", file, "--overwrite", "--yes")
    assert done.code == code, done.err
    page = file.read_text(encoding="utf-8")
    assert len(page) < LARGEST
    block = page.rpartition('<script type="application/json" id="numbers">')[2].partition("</script>")[0]
    stores: list[dict[str, Any]] = json.loads(block)["stores"]
    return page, stores


def of(verb: str, store: Path, *flags: str) -> list[dict[str, Any]]:
    return run(*verb.split(), "-s", store, "--json", *flags).objects


def test_its_numbers_are_those_of_the_other_verbs(tmp_path: Path) -> None:
    store = store_path("broker-real")
    before = tree_state(store)
    _, [found] = reported(tmp_path, store)
    assert tree_state(store) == before
    [doctor] = of("doctor", store)
    for name in ("state", "sentence", "next", "broker", "findings", "not_predicted"):
        assert found[name] == doctor[name]
    assert {**found["info"], "writes": None} == {**doctor["info"], "writes": None}
    for shown, row in zip(found["versions"], of("predict", store, "--broker", "all"), strict=True):
        warnings = shown.pop("warnings")
        assert shown == {name: row.get(name) for name in shown}
        assert warnings["rows"] + ["…"] * warnings["more"] == row["warnings"][:5] + ["…"] * max(
            0, len(row["warnings"]) - 5
        )
    [usage] = of("du", store, "--map")
    assert found["usage"]["map"] == usage["map"]
    assert found["usage"]["topics"]["rows"] == usage["topics"]
    by_time = of("stats", store, "--by", f"topic,{found['stats']['unit']}", "--no-duplicates")
    told = {(row["topic"], row[f"{found['stats']['unit']}_timestamp"]): row for row in by_time}
    drawn = [row for row in found["stats"]["over_time"] if row["topic"] is not None]
    assert drawn
    for row in drawn:
        expected = told[row["topic"], row[f"{found['stats']['unit']}_timestamp"]]
        assert row == {name: expected[name] for name in row}
    assert sum(row["messages"] for row in found["stats"]["over_time"]) == sum(row["messages"] for row in by_time)
    queues = of("groups", store)
    assert found["groups"]["lag"] == sum(row["lag"] or 0 for row in queues)
    shown = {(row["group"], row["topic"], row["queue_id"]): row for row in queues}
    for row in found["groups"]["queues"]["rows"]:
        assert row == shown[row["group"], row["topic"], row["queue_id"]]
    assert found["delays"]["rows"] == of("delays", store)
    assert found["delays"]["waiting"] == len(of("delays", store, "--due"))
    letters = of("dlq list", store)
    assert found["dead_letters"]["messages"] == len(letters) == 33
    assert found["not_read"] == []


@pytest.mark.late
@pytest.mark.parametrize("name", ["broker-real", "crc-flip-last"])
def test_parts_that_another_process_reads_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where = StoreLocation(store_path(name))

    def found() -> dict[str, Any]:
        """Return the numbers without seconds and free space, which change."""
        row = numbers.numbers_of(where, ReportScope(NOW))
        del row["check"], row["info"]["writes"], row["clean"]
        return row

    alone = found()
    ran: list[object] = []
    beside = engine.beside

    def noted(task: Callable[[Any], Any], item: object) -> AbstractContextManager[Callable[[], Any]]:
        ran.append(item)
        return beside(task, item)

    monkeypatch.setattr(engine, "beside", noted)
    monkeypatch.setattr(numbers, "_MANY_TOPICS", 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    assert found() == alone
    assert ran == [ReportScope(NOW), where]
    monkeypatch.setattr(numbers, "_ALONE_BYTES", 0)
    assert found() == alone
    assert len(ran) == 2


def test_findings_are_those_of_check(tmp_path: Path) -> None:
    store = store_path("crc-flip-last")
    _, [found] = reported(tmp_path, store, code=exit_codes.DAMAGE_OR_NOTHING)
    *findings, _ = of("check", store, "--summary")
    assert found["details"] == {"rows": findings, "more": 0}
    assert found["usage"]["map"]["damaged"] > 0


class _Tags(HTMLParser):
    """Notes the tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See HTMLParser."""
        self.tags.append((tag, dict(attrs)))


def _hostile(folder: Path) -> Path:
    """Make a damaged store with hostile names wherever a name can be."""
    store = folder / "store"
    properties = {"KEYS": WORSE, "TAGS": WORSE, "UNIQ_KEY": WORSE, "RETRY_TOPIC": WORSE, "ORIGIN_MESSAGE_ID": WORSE}
    with MessageStore.open(store, "rw", create=True) as opened:
        for topic in ("Plain", HOSTILE, "%DLQ%" + HOSTILE):
            assert opened.put(Message(topic, WORSE.encode(), properties=properties)).status.is_stored
    config = store / "config"
    config.mkdir(exist_ok=True)
    table = {f"{HOSTILE}@{WORSE}": {"0": 0}, f"{WORSE}@{WORSE}": {"0": 5}, "Plain@group": {"0": 5}}
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    (store / "commitlog" / HOSTILE).write_bytes(b"x")
    return store


@pytest.mark.parametrize("flags", [(), ("--anonymise",), ("--bodies",)])
def test_hostile_names_are_text(tmp_path: Path, flags: tuple[str, ...]) -> None:
    page, _ = reported(tmp_path, _hostile(tmp_path), *flags, code=exit_codes.DAMAGE_OR_NOTHING)
    parser = _Tags()
    parser.feed(page)
    names = {tag for tag, _ in parser.tags}
    assert names.isdisjoint(("img", "iframe", "object", "embed", "base", "form"))
    assert [attributes for tag, attributes in parser.tags if tag == "script"] == [
        {"type": "application/json", "id": "numbers"}
    ]
    for tag, attributes in parser.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:,")), (tag, attributes)
    assert re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page) is None
    assert ("onerror" in page) == ("--anonymise" not in flags)


def test_anonymised_has_no_name_of_the_store(tmp_path: Path, golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable": {"Events@g-retry": {"0": 99999}}}')
    (store / "commitlog" / "secret-host.bak").write_bytes(b"x")
    plain, _ = reported(tmp_path, store, code=exit_codes.DAMAGE_OR_NOTHING)
    page, [found] = reported(tmp_path, store, "--anonymise", code=exit_codes.DAMAGE_OR_NOTHING)
    secrets = [
        "Events",
        "Orders",
        "Later",
        "g-retry",
        "g-idle",
        "evt-",
        str(store),
        store.name,
        "secret-host",
        "FD0000000",
    ]
    assert [name for name in secrets if name not in plain] == []
    assert [name for name in secrets if name in page] == []
    by_size = {row["topic"]: row["bytes"] for row in found["usage"]["topics"]["rows"]}
    lags = [row for row in found["groups"]["rows"] if row["topic"] in by_size]
    assert lags, "one name, one word"
    again, _ = reported(tmp_path, store, "--anonymise", code=exit_codes.DAMAGE_OR_NOTHING)
    assert again != page, "the key is of one report"


def test_many_stores_and_one_that_is_none(tmp_path: Path) -> None:
    stores = [store_path("clean"), store_path("crash"), tmp_path / "nothing"]
    _, found = reported(tmp_path, *stores, code=exit_codes.DAMAGE_OR_NOTHING)
    assert [row["path"] for row in found] == [str(store) for store in stores]
    assert found[2]["state"] == "unreadable"
    done = run("report", tmp_path / "nothing", "-o", tmp_path / "none.html")
    assert done.code == exit_codes.UNREADABLE
    assert not (tmp_path / "none.html").exists()


@pytest.mark.parametrize(
    "name", ["gap", "log-gone", "index-garbage", "rocksdb", "noindex", "empty-last", "cq-lost", "multipath"]
)
def test_every_store_has_a_page(tmp_path: Path, name: str) -> None:
    file = tmp_path / "report.html"
    done = run("report", store_path(name), "-o", file)
    assert done.code in (exit_codes.OK, exit_codes.DAMAGE_OR_NOTHING), done.err
    assert file.stat().st_size < LARGEST


def test_a_store_without_messages(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", "rw", create=True):
        pass
    page, [found] = reported(tmp_path, tmp_path / "store")
    assert found["state"] == "healthy"
    assert "There are no messages." in page


def test_ctrl_c_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = importlib.import_module("rmqctl.report.page")

    def interrupted(*_: object, **__: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(page, "render", interrupted)
    run("report", store_path("clean"), "-o", tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_a_person_reads_it(tmp_path: Path) -> None:
    """In Chromium: no error, no request, nothing wider than the window, and axe finds nothing serious."""
    axe = importlib.util.find_spec("axe_core_python")
    reported(tmp_path, store_path("broker-real"), store_path("crc-flip-old"), code=exit_codes.DAMAGE_OR_NOTHING)
    file = tmp_path / "report.html"
    with opened_page(tmp_path / "profile") as page:
        for scheme in ("light", "dark"):
            for width in (360, 1400):
                page.open(file, width=width, scheme=scheme)
                assert page.requests == [file.as_uri(), "data:,"][: len(page.requests)]
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (colour == "rgb(255, 255, 255)") == (scheme == "light")
                assert page.evaluate("document.querySelectorAll('figure svg').length") > 5
                if axe is not None and axe.origin is not None:
                    page.evaluate(Path(axe.origin).with_name("axe.min.js").read_text(encoding="utf-8"))
                    found = page.evaluate("axe.run().then(found => found.violations)")
                    serious = [one for one in found if one["impact"] in ("serious", "critical")]
                    assert serious == [], [(one["id"], one["nodes"][0]["html"]) for one in serious]
                assert page.messages == []


def test_it_prints(tmp_path: Path) -> None:
    """On A4, from a dark screen: dark on white, nothing cut off, every part open."""
    reported(tmp_path, store_path("broker-real"), store_path("crc-flip-old"), code=exit_codes.DAMAGE_OR_NOTHING)
    with opened_page(tmp_path / "profile") as page:
        page.open(tmp_path / "report.html", width=1400, scheme="dark")
        page.show_as_printed(width=718)  # A4 without the margins of 1 cm
        assert page.evaluate("document.documentElement.scrollWidth") <= 718
        wide = "[...document.querySelectorAll('table, figure, pre, p')].filter(e => e.scrollWidth > e.clientWidth + 1"
        cut = page.evaluate(
            f"{wide} && getComputedStyle(e).overflowX != 'visible' || e.getBoundingClientRect().right > 719)"
            ".map(e => e.outerHTML.slice(0, 200))"
        )
        assert cut == []
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        hidden = "[...document.querySelectorAll('details table')].filter(e => e.getBoundingClientRect().height < 10)"
        assert page.evaluate(f"{hidden}.length") == 0
        assert page.print().startswith(b"%PDF-")
        assert page.messages == []
