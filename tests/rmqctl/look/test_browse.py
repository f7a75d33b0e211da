"""`rmqctl browse`: screens by textual's pilot, which has no clock and no terminal."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rmqctl.opening import StoreLocation, open_store
from rmqctl.output import outcome as exit_codes
from rmqctl.store import Message, MessageStore
from tests.goldens import GoldenStore, tree_state
from tests.opened import known_messages, store_path
from tests.quick import sample
from tests.rmqctl.looking import run

pytest.importorskip("textual")

from rmqctl.browse.app import QueueScreen, StoreApp, StoreScreen
from rmqctl.browse.look import QueueMessageRows
from rmqctl.browse.rows import RowColumn, RowView, ScreenRow

HOSTILE = "[red]\x1b[31m\u202e]8;;http://x\x07" + "long" * 20
SIZES = ((80, 24), (120, 40))


class Browsed:
    """An app under a pilot."""

    def __init__(self, app: StoreApp, pilot: Any) -> None:
        self.app, self.pilot = app, pilot

    async def press(self, *keys: str) -> list[str]:
        """Press keys; the lines of the screen once all is read."""
        await self.pilot.press(*keys)
        await self.app.workers.wait_for_complete()
        await self.pilot.pause()
        return self.lines()

    def lines(self) -> list[str]:
        """The screen as text: nothing on it acts on a terminal."""
        strips = self.app.screen._compositor.render_strips()
        lines = ["".join(segment.text for segment in strip) for strip in strips]
        assert all(line.isprintable() for line in lines), lines
        return lines

    @property
    def screen(self) -> StoreScreen:
        """The screen in front."""
        assert isinstance(self.app.screen, StoreScreen)
        return self.app.screen


def browsed(store: Path, size: tuple[int, int], see: Callable[[Browsed], Awaitable[None]]) -> None:
    """Open a store on a screen of `size` columns and lines."""

    async def main() -> None:
        location = StoreLocation(store)
        with open_store(location, lambda _: None) as opened:
            app = StoreApp(opened, location)
            async with app.run_test(size=size) as pilot:
                await pilot.pause()
                await see(Browsed(app, pilot))

    asyncio.run(main())


@pytest.mark.parametrize("size", SIZES)
def test_topics_queues_messages_message(size: tuple[int, int]) -> None:
    store = store_path("clean")
    truth = {(one["topic"], one["queueId"], one["queueOffset"]): one for one in known_messages("clean").values()}

    async def see(at: Browsed) -> None:
        topics = run("ls", "-s", store, "--json").objects
        lines = at.lines()
        assert lines[2].split()[0] == topics[0]["topic"]
        assert [line.split()[-1] for line in lines[2 : 2 + len(topics)]] == [str(one["messages"]) for one in topics]
        assert len(lines) == size[1]
        assert {len(line) for line in lines} == {size[0]}
        await at.press("enter", "enter")
        lines = await at.press("end")
        topic, last = topics[0]["topic"], topics[0]["messages"] - 1
        assert lines[-3].split()[0] == str(last)
        lines = await at.press("enter")
        wanted = truth[topic, 0, last]
        assert f"offset {last} of queue 0 of {topic}" in lines[0]
        assert any(re.match(rf"physical_offset +{wanted['phyOffset']} ", line) for line in lines)
        assert "where is" in (await at.press("w"))[0]
        assert "slot" in "".join(at.lines())
        lines = await at.press("escape", "b")
        assert any(line.startswith("body, ") for line in lines)
        await at.press("escape", "escape", "escape")
        assert "topics" in (await at.press("escape"))[0]

    browsed(store, size, see)


KEYS = tuple(
    tuple(keys.split())
    for keys in (
        "enter|enter|end|enter|b|w|escape escape g|m|c|escape l|end enter|slash k e y 2 enter|"
        "slash o f f s e t space 5 enter|slash t i m e space 1 enter|slash i d space F F enter"
    ).split("|")
)
"""Every screen once, whatever the store holds."""


STORES = "crc-flip-old rocksdb innerbatch lmq cq-lost log-gone index-garbage v4-empty-last broker-real".split()


@pytest.mark.parametrize("name", sample(STORES, ("crc-flip-old", "rocksdb", "lmq")))
def test_any_store_is_shown_and_left_as_it_was(name: str, golden_store: GoldenStore) -> None:
    store = golden_store(name)
    before = tree_state(store)

    async def see(at: Browsed) -> None:
        for keys in KEYS:
            await at.press(*keys)

    browsed(store, SIZES[0], see)
    assert tree_state(store) == before


def test_damage_is_a_row() -> None:
    [damaged] = [row for row in run("check", "-s", store_path("crc-flip-old"), "--json").objects if row.get("topic")][
        :1
    ]

    async def see(at: Browsed) -> None:
        queue = at.app.store.reader.queue(damaged["topic"], damaged["queue_id"])
        source = QueueMessageRows(at.app.store, queue)
        rows = source.read(0, source.count)
        assert [row.is_bad for row in rows].count(True) == 1
        at.app.push_screen(QueueScreen(source))
        await at.press()
        at.screen.rows.move_to([row.is_bad for row in rows].index(True))
        assert "CRC" in "".join(await at.press("enter"))
        assert "!" in (await at.press("m"))[2]

    browsed(store_path("crc-flip-old"), SIZES[0], see)


class Counted:
    """A hundred million rows that count what is read of them."""

    columns: Sequence[RowColumn] = (RowColumn("row", 12), RowColumn("text"))
    count = 100_000_000

    def __init__(self) -> None:
        self.rows_read = 0

    def read(self, begin: int, count: int) -> list[ScreenRow]:
        self.rows_read += count
        return [ScreenRow((str(number), HOSTILE)) for number in range(begin, begin + count)]


def test_reads_only_what_the_screen_shows() -> None:
    async def see(at: Browsed) -> None:
        source = Counted()
        at.app.screen.query_one(RowView).show(source)
        lines = await at.press("end")
        assert lines[-3].split()[0] == str(source.count - 1)
        lines = await at.press("pageup", "up")
        assert lines[-4].split()[0].isdecimal()
        await at.pilot.click(RowView, offset=(5, 3))
        await at.press("home", "pagedown")
        assert source.rows_read <= 8 * 24

    browsed(store_path("clean"), SIZES[0], see)


def test_hostile_names(tmp_path: Path) -> None:
    store = tmp_path / "store"
    properties = {"KEYS": HOSTILE, "TAGS": HOSTILE}
    with MessageStore.open(store, "rw", create=True) as opened:
        assert opened.put(Message("[red]Plain", HOSTILE.encode(), properties=properties)).status.is_stored
        assert opened.put(Message("\x1b[31mX", b"\xff\x1b[2J" * 99, properties=properties)).status.is_stored

    async def see(at: Browsed) -> None:
        assert "[red]Plain" in "".join(at.lines())
        assert "\\x1b[31mX" in "".join(at.lines())
        for keys in KEYS:
            await at.press(*keys)

    browsed(store, SIZES[0], see)


@pytest.mark.parametrize("keys", ["", "enter", "enter enter", "enter enter enter", "l", "m", "g"])
def test_the_command_repeats_what_is_seen(keys: str) -> None:
    store = store_path("broker-real")

    async def see(at: Browsed) -> None:
        await at.press(*keys.split())
        words = shlex.split(at.screen.command())
        assert words[0] == "rmqctl"
        done = run(*words[1:], "--json")
        assert done.code in (exit_codes.OK, exit_codes.DAMAGE_OR_NOTHING), done
        if keys == "enter enter":
            first = at.lines()[2].split()[0]
            assert str(done.objects[0]["queue_offset"]) == first

    browsed(store, SIZES[0], see)


def test_follows_a_queue_that_grows(tmp_path: Path) -> None:
    store = tmp_path / "store"

    def put(number: int) -> None:
        with MessageStore.open(store, "rw", create=True) as opened:
            assert opened.put(Message("T", b"body %d" % number)).status.is_stored

    put(0)

    async def see(at: Browsed) -> None:
        await at.press("enter", "enter", "f")
        put(1)
        assert isinstance(at.screen, QueueScreen)
        at.screen.look_again()
        assert "body 1" in "".join(await at.press())
        await at.press("q")

    browsed(store, SIZES[0], see)


def test_needs_a_terminal() -> None:
    done = run("browse", "-s", store_path("clean"))
    assert (done.code, done.out) == (exit_codes.USAGE, "")
    assert "--serve" in done.err
