"""Changes of a store: each is wholly done or wholly undone, after an undo or a resume where it was interrupted."""

from __future__ import annotations

from rmqctl.store.clean.cleaner import clean
from rmqctl.store.clean.options import CleanOptions
from rmqctl.store.journal.folder import TO_MEND
from rmqctl.store.journal.log import unfinished
from rmqctl.store.journal.undo import resume, undo
from rmqctl.store.store_files import StoreFiles
from tests.proof.crash.state import Files, Kept, Recovery, State, files_of, in_log, recovered

BEFORE, AFTER, UNKNOWN = "before", "after", ""
"""What a store is like once an interrupted step was taken back or finished: as before the step, or as after it."""


def check_changed(state: State, *, undone: str = BEFORE, resumed: str = AFTER, damaged: Recovery | None = None) -> None:
    """`undone`, `resumed`: what `undo` and `resume` lead to if the step is not finished. `damaged`: the
    store may be damaged before it, and this mends it."""
    layout = state.config.layout(state.root)
    found = unfinished(layout)
    assert not (found and state.is_done), "a change that has returned is not finished"
    if not found:
        _check_files(state, AFTER if state.is_done or UNKNOWN in (undone, resumed) else UNKNOWN)
    if found and found[0][1]["state"] not in TO_MEND:
        if state.random.random() < 0.5:
            undo(layout)
            outcome = undone
        else:
            resume(layout)
            outcome = resumed
        assert not unfinished(layout), "an interrupted change is not over"
        if outcome:
            _check_files(state, outcome)
    elif state.random.random() < 0.5 and undone == BEFORE and state.is_done:
        undo(layout)
        _check_files(state, BEFORE)
    _check_messages(state, recovered(state.root, state.config, damaged=damaged))


def _check_files(state: State, outcome: str) -> None:
    """Byte for byte. Without an outcome it may be either."""
    found = files_of(state.root)
    before, after = (_of_store(files, state.root.name) for files in (state.files_before, state.files_after))
    allowed = [before] * (outcome != AFTER) + [after] * (outcome != BEFORE)
    if found not in allowed:
        differing = [sorted(name for name, _ in found.items() ^ one.items()) for one in allowed]
        raise AssertionError(f"the store is not as {outcome or 'before or after'}: {differing} differ")


def _of_store(files: Files, name: str) -> Files:
    below = {path.partition("/")[2]: content for path, content in files.items() if path.startswith(f"{name}/")}
    return {path: content for path, content in below.items() if path.rpartition("/")[2] != "lock"}


def _check_messages(state: State, found: list[Kept]) -> None:
    before, after = set(state.before), set(state.after)
    # what fills damage is no message of anybody
    lost = sorted(one for one in before & after if one not in found)
    assert not lost, f"{len(lost)} messages are gone, the first at {lost[0].physical_offset}"


def check_mended(state: State) -> None:
    """A change that kept nothing: `recover` makes the store whole, with all that it had before."""
    _check_messages(state, recovered(state.root, state.config))


def check_cleaned(state: State) -> None:
    """Messages go from the front only, and no more than the command takes; it can be run again."""
    found = recovered(state.root, state.config)
    assert found == state.before[len(state.before) - len(found) :], "what is left is not the end of the log"
    assert found[len(found) - len(state.after) :] == state.after, "more is gone than was to be cleaned"
    with StoreFiles(state.root, state.config) as files:
        clean(files, CleanOptions(pause=0, at_once=True))
    assert in_log(state.root, state.config) == state.after
