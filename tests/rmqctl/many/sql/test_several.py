"""`rmqctl sql` over several stores: a pattern for -s, and --attach."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.goldens import truth
from tests.opened import store_path
from tests.rmqctl.looking import Done, run

NAMES = ("clean", "features")


@pytest.fixture
def brokers(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / f"broker-{name}").symlink_to(store_path(name))
    return tmp_path


def _sql(store: Path, *arguments: object) -> Done:
    return run("sql", "-s", store, *arguments)


def test_a_pattern_reads_all_stores_that_match(brokers: Path) -> None:
    done = _sql(brokers / "broker-*", "--json", "select store, count(*) n from messages group by store order by store")
    assert (done.code, done.err) == (0, "")
    assert done.objects == [
        {"store": str(brokers / f"broker-{name}"), "n": len(truth(name).messages)} for name in NAMES
    ]


def test_attached_stores_have_names(brokers: Path) -> None:
    query = "select (select count(*) from messages) a, (select count(*) from b.messages) b"
    attach = f"B={brokers / 'broker-features'}"
    done = _sql(brokers / "broker-clean", "--attach", attach, "--json", query)
    assert (done.code, done.err) == (0, "")
    assert done.objects == [dict(zip("ab", (len(truth(name).messages) for name in NAMES), strict=True))]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--attach", "b={folder}/none", "select 1"), 3, "none: there is no such directory"),
        (("--attach", "{folder}/broker-features", "select 1"), 2, "attaches no store"),
        (("--attach", "temp={folder}/broker-features", "select 1"), 2, "the name 'temp' is taken"),
        (("--attach", "b={folder}/nope-*", "select 1"), 3, "no directory matches this pattern"),
        (("--attach", "b={folder}/broker-features", "drop view b.messages"), 2, "would change something"),
        (
            ("--attach", "b={folder}/broker-features", "-o", "{folder}/broker-features/x.csv", "select 1"),
            5,
            "is inside the store",
        ),
    ],
)
def test_what_cannot_be_attached_is_said(brokers: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    done = _sql(brokers / "broker-clean", *(argument.format(folder=brokers) for argument in arguments))
    assert (done.code, done.out) == (code, "")
    assert said in done.err
