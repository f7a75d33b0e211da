"""Whatever step of a verb was its last, and whoever used the store then: no message that was stored is lost.

A sample: `python -m tests.store.journal.between_steps FOLDER` tries every step of every verb with every outsider.
"""

from __future__ import annotations

from math import gcd
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.store.journal.log import refuse_unfinished
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles
from tests.quick import sample
from tests.store.journal.between_steps import TURNS, cases, restored, tried
from tests.store.journal.commands import CONFIG, layout_of
from tests.store.journal.outsiders import OUTSIDERS
from tests.store.journal.verbs import VERBS

# no factor in common with the number of turns: each has its own
STEP = 23
QUICK = (
    "recover",
    "resume",
    "truncate --no-journal",
    "clean",
    "undo",
    "undo --give-up",
    "resume of an undo",
    "log --prune",
    "log --prune of --journal",
)


@pytest.mark.parametrize("verb", sample(VERBS, QUICK))
def test_nothing_stored_is_lost(verb: str, tmp_path: Path) -> None:
    assert gcd(STEP, len(TURNS)) == 1
    assert set(TURNS) == set(OUTSIDERS)
    seen = 0
    for case in cases(verb, tmp_path, STEP, first=len(verb)):
        try:
            tried(case)
        except AssertionError as error:
            error.add_note(f"{verb} was {case}")
            raise
        seen += 1
    assert seen


def test_an_interrupted_truncation_is_not_to_be_run_again(tmp_path: Path) -> None:
    """What a broker stored behind the cut since would go with it: the way out that is named keeps it."""
    tries = [case for case in cases("truncate --no-journal", tmp_path, 1) if case.outsider == "broker"]
    [half_done] = [case for case in tries if case.stop.change.startswith("remove") and case.stop.change.endswith("400")]
    assert tried(half_done) == ["recover"]
    with pytest.raises(RefusedError, match="kept nothing") as refused:
        refuse_unfinished(layout_of(restored(half_done)))
    assert "`rmqctl recover -s " in str(refused.value.hint)
    assert "`rmqctl truncate" not in str(refused.value.hint)
    assert "all messages stored since" in str(refused.value.hint)


def test_what_an_interrupted_truncation_left_counts_wherever_it_is(tmp_path: Path) -> None:
    """A recovery does not look into the first files of a log, but it has to make good what was interrupted there."""
    tries = cases("truncate --no-journal, of many files", tmp_path, 1)
    half_done = next(case for case in tries if case.stop.change.startswith("remove"))
    assert tried(half_done) == ["recover", "recover --bridge"]
    with StoreFiles(restored(half_done), CONFIG) as files, pytest.raises(RefusedError) as refused:
        recover(files)
    assert "`--full --cut` ends the log here" in str(refused.value.hint)
    with StoreFiles(half_done.root, CONFIG) as files:
        recover(files, cut=True)  # as far as it looks there is nothing to cut
    with pytest.raises(RefusedError, match="kept nothing"):
        refuse_unfinished(layout_of(half_done.root))
