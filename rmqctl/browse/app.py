"""The screens of `rmqctl browse`: topics, queues, messages, a message, groups, the map of the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rich.cells import chop_cells
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, Input, Static
from textual.worker import get_current_worker

from rmqctl.browse.body import MessageText, Protobuf
from rmqctl.browse.look import FoundRows, QueueMessageRows, QueueRows, TopicRows, command_line, map_lines
from rmqctl.browse.rows import RowColumn, RowView, ScreenRow, TextRows
from rmqctl.formats.errors import CorruptError, RmqctlError, counted
from rmqctl.output.table import cell, said, visible
from rmqctl.output.times import now_ms, parse_time
from rmqctl.store.options import Events

if TYPE_CHECKING:
    from rmqctl.formats.message import StoredMessage
    from rmqctl.opening import StoreLocation
    from rmqctl.store.message_store import MessageStore

_PAGE = 200
_FOLLOW_SECONDS = 1.0
_MOST_FOUND = 1000


class LeftError(Exception):
    """The screen that a search was for has been left."""


class StoreApp(App[None]):
    """A store on the screen. Reads only."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", said("Quit")),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("ctrl+q", "quit", show=False, priority=True),
    ]
    CSS = """
    .head, .note { height: 1; padding: 0 1; background: $panel; }
    .head, .note { text-wrap: nowrap; text-overflow: ellipsis; }
    .head { text-style: bold; }
    FindDialog { align: center middle; }
    FindDialog Vertical { width: 72; max-width: 100%; height: auto; background: $panel; padding: 1; }
    """

    def __init__(self, store: MessageStore, location: StoreLocation, protobuf: Protobuf | None = None) -> None:
        super().__init__()
        self.store = store
        self.location = location
        self.protobuf = protobuf

    def on_mount(self) -> None:
        """Show the topics."""
        self.push_screen(TopicsScreen())


class StoreScreen(Screen[None]):
    """A head, rows, a line of notes and the keys. `rows` are empty until `load` has them."""

    app: StoreApp
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", said("Back")),
        Binding("backspace,left", "back", show=False),
        Binding("slash", "find", said("Find")),
        Binding("g", "groups", said("Groups")),
        Binding("l", "log", said("Log")),
        Binding("m", "map", said("Map")),
        Binding("c", "command", said("Command")),
    ]
    says = ""

    def compose(self) -> ComposeResult:
        """Yield the parts of the screen."""
        yield Static(visible(f"{said(self.says)} · {self.app.location.path}"), classes="head", markup=False)
        yield RowView(TextRows(()))
        yield Static("", classes="note", markup=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Fill the rows."""
        self.guarded(self.load)
        self.rows.focus()

    @property
    def rows(self) -> RowView:
        """The table."""
        return self.query_one(RowView)

    @property
    def store(self) -> MessageStore:
        """The store."""
        return self.app.store

    def load(self) -> None:
        """Fill the rows. RmqctlError is shown."""

    def opened(self, number: int) -> None:
        """Open a row."""

    def command(self) -> str:
        """Return the command that prints what the screen shows."""
        raise NotImplementedError

    def note(self, *sentences: str) -> None:
        """Show sentences below the rows."""
        self.query_one(".note", Static).update(visible(" · ".join(map(said, sentences))))

    def guarded(self, action: Callable[[], object]) -> None:
        """Run it; show an error in place of what it reads."""
        try:
            action()
        except RmqctlError as error:
            self.note(str(error), *([error.hint] if error.hint else []))

    def on_row_view_opened(self, event: RowView.Opened) -> None:
        """Open the chosen row."""
        self.guarded(lambda: self.opened(event.number))

    def in_background(self, read: Callable[[Events], Callable[[], object]], what: str) -> None:
        """Read without holding up the screen: `read` returns what then shows it. Leaving the screen ends it."""
        done = 0
        worker: Any = None

        def passed(size: int) -> None:
            nonlocal done
            if worker.is_cancelled:
                raise LeftError
            if (done + size) >> 26 != done >> 26:
                self.app.call_from_thread(self.note, f"{what}: {(done + size) >> 20} MiB read")
            done += size

        def work() -> None:
            nonlocal worker
            worker = get_current_worker()
            found: list[CorruptError] = []
            try:
                show = read(Events(passed, found.append, None))
            except LeftError:
                return
            except RmqctlError as error:
                self.app.call_from_thread(self.note, str(error))
                return
            if not worker.is_cancelled:
                self.app.call_from_thread(show)
                rows = self.rows.source.count
                self.app.call_from_thread(self.note, _damage_note(found) or ("" if rows else "nothing found"))

        self.note(f"{said(what)} …")
        self.run_worker(work, thread=True, exclusive=True, exit_on_error=False)

    def action_back(self) -> None:
        """Return to the screen before."""
        if len(self.app.screen_stack) > 2:
            self.app.pop_screen()

    def action_groups(self) -> None:
        """Show consumer groups."""
        self.app.push_screen(GroupsScreen())

    def action_log(self) -> None:
        """Show the commitlog from its first message on."""
        self.app.push_screen(LogScreen(max(self.store.files.log.min_offset, 0)))

    def action_map(self) -> None:
        """Show what the log holds."""
        self.app.push_screen(MapScreen())

    def action_command(self) -> None:
        """Show and copy the command that prints the same."""
        command = self.command()
        self.app.copy_to_clipboard(command)
        self.app.push_screen(TextScreen("command, copied where the terminal allows it", [command], command))

    def action_find(self) -> None:
        """FindDialog for a key, an id, a physical offset or a time."""
        self.app.push_screen(FindDialog(), self.find)

    def find(self, asked: str | None) -> None:
        """Show what is found for `asked`: `key K`, `id I`, `offset N`, `time T`, or a key alone."""
        kind, _, rest = (asked or "").strip().partition(" ")
        if kind not in ("key", "id", "offset", "time") or not rest:
            kind, rest = "key", (asked or "").strip()
        if not rest:
            return
        if kind == "offset":
            self.guarded(lambda: self._at_offset(rest))
        elif kind == "time":
            self.guarded(lambda: self.at_time(parse_time(rest)))
        else:
            self.app.push_screen(FoundScreen(kind, rest))

    def _at_offset(self, text: str) -> None:
        from rmqctl.formats.errors import UsageError

        if not text.isdecimal():
            raise UsageError(f"{text} is not a physical offset")
        self.app.push_screen(MessageScreen(self.store.message_at(int(text))))

    def at_time(self, timestamp: int) -> None:
        """Show what was stored at or after a time (ms)."""
        self.app.push_screen(LogScreen(max(self.store.files.log.min_offset, 0), timestamp))


def _damage_note(found: Sequence[RmqctlError]) -> str:
    return f"{counted(len(found), 'damaged place')}, first: {found[0]}" if found else ""


class TopicsScreen(StoreScreen):
    """Topics of the store."""

    says = "topics"

    def load(self) -> None:
        """List the topics."""
        store = self.store
        try:
            self.rows.show(TopicRows(store))
        finally:
            missing = store.files.dledger.said if store.files.dledger is not None else None
            if missing or not self.rows.source.count:
                self.note(missing or "no topic has queues", "l shows the commitlog")

    def opened(self, number: int) -> None:
        """Show the queues of a topic."""
        source = self.rows.source
        assert isinstance(source, TopicRows)
        self.app.push_screen(QueuesScreen(source.names[number]))

    def command(self) -> str:
        """As `ls`."""
        return command_line(self.app.location, "ls")


class QueuesScreen(StoreScreen):
    """Queues of a topic."""

    def __init__(self, topic: str) -> None:
        super().__init__()
        self.topic = topic
        self.says = f"queues of {topic}"

    def load(self) -> None:
        """List the queues."""
        self.rows.show(QueueRows(self.store, self.topic))

    def opened(self, number: int) -> None:
        """Show the messages of a queue."""
        source = self.rows.source
        assert isinstance(source, QueueRows)
        self.app.push_screen(QueueScreen(QueueMessageRows(self.store, source.queues[number])))

    def command(self) -> str:
        """As `ls --queues`."""
        return command_line(self.app.location, "ls", "--queues", "-t", self.topic)


class MessagesScreen(StoreScreen):
    """Messages as rows."""

    def opened(self, number: int) -> None:
        """Show a message."""
        source = self.rows.source
        if isinstance(source, QueueMessageRows | FoundRows):
            try:
                self.app.push_screen(MessageScreen(source.message(number)))
            except RmqctlError as error:
                self.app.push_screen(TextScreen("damage", [str(error), error.hint or ""], self.command()))


class QueueScreen(MessagesScreen):
    """Messages of a queue; follows a queue that grows."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("f", "follow", said("Follow"))]

    def __init__(self, source: QueueMessageRows) -> None:
        super().__init__()
        self.source = source
        self.says = f"queue {source.queue.queue_id} of {source.queue.topic}"
        self.is_following = False

    def load(self) -> None:
        """Show the first messages."""
        self.rows.show(self.source)
        self.set_interval(_FOLLOW_SECONDS, self.look_again)

    def look_again(self) -> None:
        """Take in what was stored since, while the queue is followed."""
        if self.is_following and self.is_current:
            self.guarded(self._grow)

    def _grow(self) -> None:
        before = self.source.count
        self.store.files.look_again()
        self.source.queue.look_again()
        if self.source.count != before:
            self.rows.refresh_rows()
            self.rows.action_end(True)

    def action_follow(self) -> None:
        """Begin or stop to follow."""
        self.is_following = not self.is_following
        self.note(*(("following: new messages appear at the end", "f stops") if self.is_following else ("",)))
        if self.is_following:
            self.look_again()
            self.rows.action_end(True)

    def at_time(self, timestamp: int) -> None:
        """Move to the first message at or after a time (ms)."""
        self.rows.move_to(self.source.number_at(timestamp))

    def command(self) -> str:
        """As `cat --order queue` from the row under the cursor on."""
        queue, first = self.source.queue, self.source.first + int(self.rows.scroll_offset.y)
        place = ("-t", queue.topic, "-q", queue.queue_id, "--order", "queue")
        if self.is_following:
            return command_line(self.app.location, "cat", "-t", queue.topic, "-q", queue.queue_id, "--follow")
        return command_line(self.app.location, "cat", *place, "-o", first, "-n", max(1, self.rows.size.height - 1))


class LogScreen(MessagesScreen):
    """A page of messages in order of the log, from a physical offset on."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("n", "next", said("Next page"))]

    def __init__(self, begin: int, begin_time: int | None = None) -> None:
        super().__init__()
        self.begin, self.begin_time = begin, begin_time
        self.says = (
            f"log from physical offset {begin}" if begin_time is None else f"log from {cell(begin_time, '_timestamp')}"
        )

    def load(self) -> None:
        """Read a page."""
        from itertools import islice

        from rmqctl.store.read.filter import Criteria

        def read(events: Events) -> Callable[[], object]:
            damage: list[RmqctlError] = []
            criteria = Criteria(begin_time=self.begin_time)
            messages = self.store.messages(criteria, self.begin, events=events._replace(damage=damage.append))
            page = list(islice(messages, _PAGE))
            return lambda: self.rows.show(FoundRows(page, damage))

        self.in_background(read, "reading the commitlog")

    def action_next(self) -> None:
        """Show the next page."""
        source = self.rows.source
        if isinstance(source, FoundRows) and len(source.messages) == _PAGE:
            last = source.messages[-1]
            self.app.push_screen(LogScreen(last.physical_offset + last.total_size, self.begin_time))
        else:
            self.note("this is the end of the log")

    def command(self) -> str:
        """As `cat`."""
        time = () if self.begin_time is None else ("-b", self.begin_time)
        return command_line(self.app.location, "cat", "-o", self.begin, *time, "-n", _PAGE)


class FoundScreen(MessagesScreen):
    """Messages with a key or an id."""

    def __init__(self, kind: str, word: str) -> None:
        super().__init__()
        self.kind, self.word = kind, word
        self.says = f"{kind} {word}"

    def load(self) -> None:
        """FindDialog the index."""

        def read(events: Events) -> Callable[[], object]:
            from rmqctl.store.read.filter import TopicFilter

            reader = self.store.reader.telling(events)
            is_id, word = self.kind == "id", self.word
            found = reader.find(word) if is_id else reader.query(TopicFilter(), word, limit=_MOST_FOUND)
            return lambda: self.rows.show(FoundRows(found.messages, found.damaged))

        self.in_background(read, "searching")

    def command(self) -> str:
        """As `query`."""
        return command_line(self.app.location, "query", "-k" if self.kind == "key" else "-i", self.word)


class MessageScreen(StoreScreen):
    """One message: fields and body."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "body", said("Body as")),
        Binding("w", "where", said("Where")),
    ]

    def __init__(self, message: StoredMessage) -> None:
        super().__init__()
        self.message = message
        self.says = f"offset {message.queue_offset} of queue {message.queue_id} of {message.topic}"

    def load(self) -> None:
        """Show fields and body."""
        self.rows.show(MessageText(self.message, self.app.protobuf, self.app.size.width - 4))

    def action_body(self) -> None:
        """Show the body in the next form: text, JSON, hexadecimal, protobuf."""
        source = self.rows.source
        if isinstance(source, MessageText):
            source.next_form()
            self.rows.refresh_rows()
            self.rows.move_to(source.count - 1)
            self.rows.move_to(source.body_line)

    def action_where(self) -> None:
        """Show where the message is, and which groups have it."""
        self.app.push_screen(WhereScreen(self.message))

    def command(self) -> str:
        """As `query -o`."""
        return command_line(self.app.location, "query", "-o", self.message.physical_offset)


class WhereScreen(StoreScreen):
    """Where a message is, and which groups have it."""

    def __init__(self, message: StoredMessage) -> None:
        super().__init__()
        self.message = message
        self.says = f"where is physical offset {message.physical_offset}"

    def load(self) -> None:
        """Answer as `rmqctl where`."""

        def read(events: Events) -> Callable[[], object]:
            from rmqctl.reports.consumers import whereabouts_lines
            from rmqctl.store.answers.where import WhereQuestion, where

            question = WhereQuestion((str(self.message.physical_offset),), now_ms(), kind="offset")
            width = self.app.size.width - 2
            answers = where(self.store.reader.telling(events), question)
            lines = [line for one in answers for line in whereabouts_lines(one, width)]
            return lambda: self.rows.show(TextRows(lines))

        self.in_background(read, "searching")

    def command(self) -> str:
        """As `where`."""
        return command_line(self.app.location, "where", "--by", "offset", self.message.physical_offset)


class _GroupRows:
    """Consumer groups by topic."""

    columns: Sequence[RowColumn] = (
        RowColumn("group", 20),
        RowColumn("topic", 20),
        RowColumn("lag", 8, True),
        RowColumn("behind", 8, True),
        RowColumn("state"),
    )

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.rows = rows

    @property
    def count(self) -> int:
        return len(self.rows)

    def read(self, begin: int, count: int) -> list[ScreenRow]:
        return [self._row(row) for row in self.rows[begin : begin + count]]

    def _row(self, row: dict[str, Any]) -> ScreenRow:
        state = f"{row['state']}  {said(row['detail'] or '')}"
        is_bad = row["state"] in ("damaged", "past-end")
        topic = row["topic"] or ""
        if row["queue_id"] is not None:
            topic = f"{row['queue_id']}: {topic}"
        return ScreenRow((row["group"], topic, cell(row["lag"]), cell(row["lag_ms"], "lag_ms"), state), is_bad)


class GroupsScreen(StoreScreen):
    """Consumer groups with their lag; the queues of one group and topic."""

    def __init__(self, group: str | None = None, topic: str | None = None) -> None:
        super().__init__()
        self.group, self.topic = group, topic
        self.says = "groups" if group is None else f"group {group} in {topic}"

    def load(self) -> None:
        """Read offsets and queues."""

        def read(events: Events) -> Callable[[], object]:
            from rmqctl.reports.consumers import by_topic

            rows = [row._asdict() for row in self.store.groups(self.group, self.topic, events=events)]
            if self.group is None:
                rows = [row | {"queue_id": None} for row in by_topic(rows)]
            return lambda: self.rows.show(_GroupRows(rows))

        self.in_background(read, "reading the groups")

    def opened(self, number: int) -> None:
        """Show the queues of a group and topic."""
        source = self.rows.source
        if self.group is None and isinstance(source, _GroupRows):
            row = source.rows[number]
            self.app.push_screen(GroupsScreen(row["group"], row["topic"]))

    def command(self) -> str:
        """As `groups`."""
        group = () if self.group is None else ("-g", self.group)
        topic = () if self.topic is None else ("-t", self.topic)
        return command_line(self.app.location, "groups", *group, *topic)


class MapScreen(StoreScreen):
    """What each stretch of the commitlog holds."""

    says = "map of the commitlog"

    def load(self) -> None:
        """Walk the log as `du --map` does."""

        def read(events: Events) -> Callable[[], object]:
            from rmqctl.store.info.counts import count_topics, new_map

            found = new_map(self.store.files)
            count_topics(self.store.files.log, events._replace(damage=None), found.add)
            return lambda: self.rows.show(TextRows(map_lines(found)))

        self.in_background(read, "reading the commitlog")

    def command(self) -> str:
        """As `du --map`."""
        return command_line(self.app.location, "du", "--map")


class TextScreen(StoreScreen):
    """A few lines."""

    def __init__(self, says: str, lines: Sequence[str], command: str) -> None:
        super().__init__()
        self.says = says
        self._text, self._command = lines, command

    def load(self) -> None:
        """Show them, wrapped."""
        width = max(20, self.app.size.width - 2)
        texts = [visible(said(line)) for line in self._text]
        wrapped = [part for text in texts for part in chop_cells(text, width) or [""]]
        self.rows.show(TextRows(wrapped))

    def command(self) -> str:
        """As the screen before."""
        return self._command


class FindDialog(ModalScreen[str]):
    """Asks what to look for."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss('')")]

    def compose(self) -> ComposeResult:
        """Yield the question."""
        with Vertical():
            yield Static(said("KEY · key KEY · id ID · offset N · time 2026-05-01 or 2h ago"), markup=False)
            yield Input(placeholder="order-17")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Answer."""
        self.dismiss(event.value)
