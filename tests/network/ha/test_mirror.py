"""A mirror is its master's log byte for byte, whatever breaks on the way, and never has a byte that it has not."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.network.ha.master import encode_transfer_head
from rmqctl.network.ha.mirror import Following, Mirror
from rmqctl.store.files import io
from tests.goldens import golden, tree_state
from tests.network.ha.masters import TIMINGS, Master, MasterLink, content, follow, opened
from tests.quick import every
from tests.store.files.crashing import crashed, recorded

FILE_SIZE = 262144
"""Of the golden store `clean`."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A log of nine files."""
    return content(golden("clean", tmp_path_factory.mktemp("goldens")) / "commitlog")


@pytest.fixture(scope="module")
def log(whole: bytes) -> bytes:
    """The first three files of it, up to the end of a message in the third."""
    return whole[:601709]


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    return tmp_path / "mirror"


def _padded(log: bytes) -> bytes:
    return log + bytes(-len(log) % FILE_SIZE)


def test_it_is_the_masters_log_and_tells_the_master_nothing(log: bytes, mirror: Path) -> None:
    master = Master(log, FILE_SIZE)
    done = follow(master, mirror)
    assert content(mirror) == _padded(log)
    assert [path.name for path in sorted(mirror.iterdir())] == [f"{n * FILE_SIZE:020d}" for n in range(3)]
    assert (done.received, done.lost, master.reports) == (len(log), None, [[1]])


@pytest.mark.parametrize("cut", every(3, [1, 11, 12, 13, 100, 32780, FILE_SIZE + 24 * 8]))
def test_it_goes_on_after_a_cut_connection(log: bytes, mirror: Path, cut: int) -> None:
    master = Master(log, FILE_SIZE, cuts=[cut, cut + 40_000, 120_000, cut, None])
    done = follow(master, mirror)
    assert content(mirror) == _padded(log)
    assert done.connections >= 4
    # each begins with what is here already, so that it can be compared
    assert all(reports[0] <= done.received for reports in master.reports)


# of files, when nothing goes wrong
OPERATIONS = 31


def test_nothing_of_a_mirror_is_left_out_below(log: bytes, mirror: Path) -> None:
    done = recorded(partial(follow, Master(log, FILE_SIZE), mirror, size=FILE_SIZE))
    assert len(done) == OPERATIONS, [one[0] for one in done]


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("number", every(6, range(1, OPERATIONS + 1)))
def test_it_goes_on_after_it_was_killed(log: bytes, mirror: Path, number: int, torn: bool) -> None:
    master = Master(log, FILE_SIZE)
    crashed(partial(follow, master, mirror, size=FILE_SIZE), number, torn=torn)
    before = content(mirror)
    # not even then is there a byte that the master has not
    assert all(ours in (theirs, 0) for ours, theirs in zip(before, _padded(log), strict=False))
    follow(master, mirror, size=FILE_SIZE)
    assert content(mirror) == _padded(log)


def test_pages_that_a_power_cut_took_are_fetched_again(log: bytes, mirror: Path) -> None:
    follow(Master(log, FILE_SIZE), mirror)
    last = sorted(mirror.iterdir())[-1]
    for page in (2, 7):
        io.write_range(last, page * 4096, bytes(4096))
    follow(Master(log, FILE_SIZE), mirror)
    assert content(mirror) == _padded(log)


def test_it_goes_on_when_the_master_has_rolled_and_cleaned(whole: bytes, mirror: Path) -> None:
    follow(Master(whole[:601709], FILE_SIZE), mirror)
    cleaned = Master(whole[2 * FILE_SIZE : 2135612], FILE_SIZE, begin=2 * FILE_SIZE)
    follow(cleaned, mirror, Following(start=1, master_begin=cleaned.begin, stop_when_quiet=True))
    assert content(mirror) == whole[: len(content(mirror))]
    assert len(content(mirror)) == 9 * FILE_SIZE
    assert cleaned.reports[0][0] >= cleaned.begin


@pytest.mark.parametrize("known", [False, True])
def test_a_gap_is_refused(whole: bytes, mirror: Path, known: bool) -> None:
    follow(Master(whole[:601709], FILE_SIZE), mirror)
    before = tree_state(mirror)
    cleaned = Master(whole[4 * FILE_SIZE : 2135612], FILE_SIZE, begin=4 * FILE_SIZE)
    begin = cleaned.begin if known else 0
    with pytest.raises(RefusedError) as refused:
        follow(cleaned, mirror, Following(start=1, master_begin=begin, stop_when_quiet=True))
    assert "new mirror in another one" in (refused.value.hint or "")
    assert tree_state(mirror) == before


def test_a_master_that_lost_its_end_is_not_followed(log: bytes, mirror: Path) -> None:
    follow(Master(log, FILE_SIZE), mirror)
    before = tree_state(mirror)
    for end in (len(log) - 1000, len(log) - 200_000):
        with pytest.raises(RefusedError, match="has nothing behind"):
            follow(Master(log[:end], FILE_SIZE), mirror)
        assert tree_state(mirror) == before


@pytest.mark.parametrize("back", every(2, [1, 60, 700, 30_000]))
def test_another_history_is_not_followed(log: bytes, mirror: Path, back: int) -> None:
    follow(Master(log, FILE_SIZE), mirror)
    before = tree_state(mirror)
    other = bytearray(log + log[:50_000])
    for place in range(len(log) - back, len(log)):
        other[place] ^= 0x55
    with pytest.raises(RefusedError, match="another byte than the master's") as refused:
        follow(Master(bytes(other), FILE_SIZE), mirror)
    assert refused.value.physical_offset is not None
    assert tree_state(mirror) == before


def test_what_is_acknowledged_is_on_disk(log: bytes, mirror: Path) -> None:
    master = Master(log, FILE_SIZE)
    written: dict[str, int] = {}
    flushed = {"end": 0}

    def observe(operation: str, path: str, offset: int, length: int) -> None:
        if operation == "write":
            written[path] = int(Path(path).name) + offset + length
        elif operation == "fsync" and path in written:
            flushed["end"] = max(flushed["end"], written[path])

    checked = []
    send = MasterLink.send

    def sent(link: MasterLink, data: bytes) -> None:
        send(link, data)
        checked.append((master.reports[-1][-1], flushed["end"]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MasterLink, "send", sent)
        patch.setattr(io, "observer", observe)
        follow(master, mirror, Following(start=1, stop_when_quiet=True, acknowledges=True))
    assert all(report <= max(1, on_disk) for report, on_disk in checked)
    assert checked[-1][0] == len(log)
    assert len(checked) > 10


def test_reports_go_out_in_time_and_say_the_same(log: bytes, mirror: Path) -> None:
    master = Master(log, FILE_SIZE)
    following = Following(start=1, stop_when_quiet=True, timings=TIMINGS._replace(keep_alive=0))
    Mirror(opened(mirror), master.dial, following).run(lambda: False)
    assert len(master.reports[0]) > 10
    assert set(master.reports[0]) == {1}


def test_a_new_slave_begins_at_the_last_file(log: bytes, mirror: Path) -> None:
    follow(Master(log, FILE_SIZE), mirror, Following(start=0, stop_when_quiet=True), size=FILE_SIZE)
    assert [int(path.name) for path in mirror.iterdir()] == [2 * FILE_SIZE]
    assert content(mirror) == _padded(log)[2 * FILE_SIZE :]


def test_files_of_another_size_are_refused(log: bytes, mirror: Path) -> None:
    with pytest.raises(RefusedError, match="ends here, after 262144 bytes, not 1048576"):
        follow(Master(log, FILE_SIZE), mirror, size=1 << 20)


def test_a_log_that_is_gone_from_its_beginning_is_told(log: bytes, mirror: Path) -> None:
    master = Master(log[FILE_SIZE:], FILE_SIZE, begin=FILE_SIZE)
    with pytest.raises(RefusedError, match="sends nothing from 0 on"):
        follow(master, mirror, Following(stop_when_quiet=True))
    assert list(mirror.iterdir()) == []


class _Says(MasterLink):
    """Sends what it is given, then nothing."""

    def __init__(self, *said: bytes) -> None:
        super().__init__(Master(b"", FILE_SIZE), None, [])
        self._frames = itertools.chain(said, itertools.repeat(b""))


GOOD = encode_transfer_head(1, 4) + b"\0\0\1\1"
HOSTILE = {
    "a gap": encode_transfer_head(6, 2) + b"xx",
    "back": encode_transfer_head(4, 2) + b"xx",
    "negative": encode_transfer_head(5, -1),
    "too much": encode_transfer_head(5, 0x7FFFFFFF),
    "a heartbeat from elsewhere": encode_transfer_head(9, 0),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_no_master_sends_ends_it_and_what_was_good_stays(mirror: Path, name: str) -> None:
    following = Following(start=1, timings=TIMINGS)
    one = Mirror(opened(mirror, 4096), lambda: _Says(GOOD, HOSTILE[name]), following)
    one.run(lambda: False)
    assert "no master, or a broken one" in str(one.lost)
    assert content(mirror) == (b"\0\0\0\1\1").ljust(4096, b"\0")


def test_a_silent_master_is_left_and_given_up(mirror: Path) -> None:
    told: list[str] = []
    one = Mirror(opened(mirror, 4096), _Says, Following(start=1, timings=TIMINGS), told.append)
    one.run(lambda: False)
    assert "silent" in str(one.lost)
    assert one.connections > 1
    assert len(told) == 1
