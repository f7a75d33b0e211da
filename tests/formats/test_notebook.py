"""What notebooks show: each store, report, finding, message and result has a table in which nothing is markup."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rmqctl.formats.errors import NotAStoreError
from rmqctl.formats.notebook import as_html
from rmqctl.store import ChangeOptions, Message, MessageStore
from rmqctl.store.check.catalogue import Finding
from tests.opened import store_path

HOSTILE = "<img src=x onerror=alert(1)>'\"&<!--\u202e\x1b[31m</td></table><script>"


class _Tags(HTMLParser):
    """Notes tags and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See HTMLParser."""
        assert {name for name, _ in attrs} <= {"scope", "style"}
        self.tags.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """See HTMLParser."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """See HTMLParser."""
        self.text.append(data)


def shown(value: object) -> list[str]:
    """Return the texts that a notebook shows of it."""
    page = value._repr_html_()  # type: ignore[attr-defined]
    tags = _Tags(page)
    assert tags.open == []
    assert tags.tags <= {"table", "caption", "tbody", "thead", "tr", "th", "td", "br", "p"}
    assert all(char.isprintable() for char in page)
    return tags.text


def test_a_store_and_what_it_returns() -> None:
    with MessageStore.open(store_path("broker-real")) as store:
        texts = shown(store)
        assert str(store_path("broker-real")) in texts
        assert "738" in texts, "units of its queues"
        check = store.check()
        list(check)
        assert "messages" in shown(check)
        for found in (store.predict("5.3.3"), store.recover(change=ChangeOptions(dry_run=True)), store.disk_usage(),
                      store.forecast_clean(), store.rebuild(change=ChangeOptions(dry_run=True))):  # fmt: skip
            assert type(found).__name__ in shown(found)
        message = store.message_at(0)
        result = store.query(message.topic, message.properties()["UNIQ_KEY"], 0, 1 << 62, 10)
        assert message.message_id in shown(result)
        assert message.message_id in shown(message)
        assert message.body.decode() in shown(store.get(message.topic, message.queue_id, message.queue_offset, 1))
        assert "GroupQueue" in shown(next(store.groups()))


def test_findings_of_a_damaged_store() -> None:
    with MessageStore.open(store_path("crc-flip-last")) as store:
        check = store.check()
        findings = list(check)
        assert findings[0].code in shown(check)
        assert {findings[0].code, findings[0].message, str(findings[0].severity)} <= set(shown(findings[0]))


def test_names_of_a_store_are_text(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", "rw", create=True) as store:
        put = store.put(Message("Topic", HOSTILE.encode(), properties={"KEYS": HOSTILE, HOSTILE: HOSTILE}))
        assert "PUT_OK" in shown(put)
        store.flush()
        texts = shown(store.message_at(0))
    visible = HOSTILE.replace("\u202e", r"\u202e").replace("\x1b", r"\x1b")
    assert texts.count(visible) == 4, "body, key, name and value of a property"
    config = tmp_path / "store" / "config"
    config.mkdir(exist_ok=True)
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": {f"{HOSTILE}@{HOSTILE}": {"0": 5}}}))
    with MessageStore.open(tmp_path / "store") as store:
        assert visible in shown(next(store.groups()))
        list(check := store.check())
        assert visible in "".join(shown(check))
    assert visible in shown(Finding("RMQ-LOG-001", HOSTILE, Path(HOSTILE)))


def test_a_store_that_is_gone_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(store_path("clean")) as store:

        def gone(**_: object) -> None:
            raise NotAStoreError(f"no store in {HOSTILE}")

        monkeypatch.setattr(store, "info", gone)
        assert "not readable" in shown(store)


def test_long_lists_and_texts_are_cut() -> None:
    many = as_html({"rows": [{"n": n} for n in range(60)], "text": "x" * 1000, "names": ["a", "b"], "at_timestamp": 1})
    assert "and 10 more" in many
    assert "x" * 300 + "…" in many
    assert "a<br>b" in many
    assert "1970-01-01T00:00:00.001Z" in many
