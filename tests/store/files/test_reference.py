"""Reference counting against the rules of RocketMQ's ReferenceResource (numbers of the cleaning rules, section 4)."""

from __future__ import annotations

import threading

from rmqctl.store.files.mapped_file import ReferenceCount


def test_it_starts_available_with_the_owner_s_reference() -> None:
    reference = ReferenceCount()
    assert (reference.count, reference.available, reference.is_cleanup_over) == (1, True, False)


def test_hold_and_release_count() -> None:
    reference = ReferenceCount()
    assert reference.hold()
    assert reference.hold()
    assert reference.count == 3
    reference.release()
    assert reference.count == 2


def test_shutdown_of_an_unheld_file_ends_it_at_once_and_cleans_up_once() -> None:
    calls: list[int] = []
    reference = ReferenceCount(lambda: calls.append(1))
    assert reference.would_end(1000, 5)
    assert calls == []
    assert reference.shutdown(1000, 5)
    assert (reference.count, reference.available, reference.first_shutdown_time) == (0, False, 5)
    assert reference.shutdown(1000, 6)
    assert calls == [1]


def test_no_hold_after_shutdown() -> None:
    reference = ReferenceCount()
    assert reference.hold()
    assert not reference.shutdown(1000, 0)
    assert not reference.hold()
    assert reference.count == 1, "a refused hold leaves the count alone"


def test_the_last_reader_cleans_up_but_only_a_further_shutdown_says_so() -> None:
    calls: list[int] = []
    reference = ReferenceCount(lambda: calls.append(1))
    reference.hold()
    reference.hold()
    assert not reference.shutdown(1000, 0)
    reference.release()
    assert not reference.is_cleanup_over
    assert not reference.shutdown(1000, 999)
    reference.release()
    assert calls == [1]
    assert reference.shutdown(1000, 999)


def test_a_held_file_is_forced_when_the_interval_is_over_to_the_millisecond() -> None:
    calls: list[int] = []
    reference = ReferenceCount(lambda: calls.append(1))
    for _ in range(3):
        reference.hold()
    assert not reference.would_end(1000, 100)
    assert not reference.shutdown(1000, 100)
    assert not reference.shutdown(1000, 1099), "999 ms after the first call"
    assert reference.first_shutdown_time == 100, "the first call counts, not the last"
    assert not reference.would_end(1000, 1099)
    assert reference.would_end(1000, 1100)
    assert reference.shutdown(1000, 1100)
    assert reference.count == -1000 - 3 - 1
    assert calls == [1]
    reference.release()
    assert calls == [1], "a reader that comes back late does no harm"
    assert reference.is_cleanup_over


def test_releasing_too_often_does_not_clean_up_a_file_in_use() -> None:
    calls: list[int] = []
    reference = ReferenceCount(lambda: calls.append(1))
    reference.release()
    assert (reference.count, calls) == (0, [])
    assert not reference.hold(), "nothing is left to hold on to"
    assert reference.shutdown(1000, 0)
    assert calls == [1]


def test_holds_from_many_threads_are_counted_exactly() -> None:
    reference = ReferenceCount()

    def reader() -> None:
        for _ in range(500):
            if reference.hold():
                reference.release()

    threads = [threading.Thread(target=reader) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reference.count == 1
    assert reference.shutdown(0, 0)
