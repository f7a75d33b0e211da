"""The examples of README and docs/library.md run, and print what stands behind their lines."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import sys
from pathlib import Path

import pytest

import rmqctl
from rmqctl import store
from rmqctl.formats import errors
from rmqctl.store import MessageStore
from tests.processes import run

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PRINTED = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)
# what is no method for users of the class
_ASIDE = {"open", "close", "files", "reader", "notebook_fields"}


def blocks(text: str) -> list[str]:
    """The code of the examples of a document, in their order."""
    return _BLOCK.findall(text)


def printed(text: str, root: Path) -> list[tuple[list[str], list[str]]]:
    """Run the examples of a document one after the other, `/data` being `root`: of each, what it says that it prints,
    and what it prints."""
    names: dict[str, object] = {}
    found = []
    for number, block in enumerate(blocks(text)):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(block.replace("/data/", f"{root}/"), f"example {number}", "exec"), names)
        found.append((_PRINTED.findall(block), out.getvalue().splitlines()))
    return found


@pytest.mark.parametrize("document", ["README.md", "docs/library.md"])
def test_the_examples_run_and_print_what_they_say(document: str, tmp_path: Path) -> None:
    if document != "README.md":
        pytest.importorskip("pyarrow")
    found = printed((ROOT / document).read_text(encoding="utf-8"), tmp_path)
    assert found
    assert [said for said, _ in found] == [shown for _, shown in found]


def test_an_example_that_prints_something_else_is_seen(tmp_path: Path) -> None:
    text = "```python\nprint(1 + 1)  # 2\n```\n\n```python\nfor n in '/data/x':\n    print(0)  # 0\n```\n"
    (said, shown), (few, many) = printed(text, tmp_path)
    assert said == shown == ["2"]
    assert few == ["0"] != many


def test_every_method_has_an_example() -> None:
    code = "\n".join(blocks((ROOT / "docs/library.md").read_text(encoding="utf-8")))
    methods = {name for name in dir(MessageStore) if not name.startswith("_")} - _ASIDE
    told = {"check_message", "check_many", "check_columns", "advance_queue", "is_dispatched", "wait_for_dispatch"}
    assert sorted(name for name in methods - told if not re.search(rf"\.{name}\b", code)) == []


def test_every_public_name_is_there_and_typed() -> None:
    source = Path(store.__file__).read_text(encoding="utf-8")
    typed = set(re.findall(r"\b(\w+)[,\n)]", source[source.index("if TYPE_CHECKING") : source.index("_NAMES")]))
    for name in store.__all__:
        found = getattr(store, name)
        home = importlib.import_module(found.__module__)
        assert getattr(home, name) is found
        assert name in typed
        assert (found.__doc__ or "").strip()
        assert name in dir(store)
    assert (Path(rmqctl.__file__).parent / "py.typed").is_file()
    with pytest.raises(AttributeError, match="no attribute 'Massage'"):
        _ = store.Massage  # type: ignore[attr-defined]


def test_every_error_that_a_store_raises_can_be_imported_from_it() -> None:
    named = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    # these are Spark's and the wire's
    assert named - {"EngineError", "RemoteError"} <= set(store.__all__)


def test_every_public_method_is_documented() -> None:
    methods = {name for name in dir(MessageStore) if not name.startswith("_")} - {"files", "reader"}
    assert sorted(name for name in methods if not (getattr(MessageStore, name).__doc__ or "").strip()) == []


def test_a_program_that_imports_the_class_loads_nothing_heavy() -> None:
    code = (
        "import sys; from rmqctl.store import Message, MessageStore, StoreConfig, RefusedError; "
        "print(sorted({'numpy', 'construct', 'rich', 'click', 'pyarrow', 'rmqctl.store.write.writer'}"
        " & set(sys.modules)))"
    )
    ended = run([sys.executable, "-c", code])
    assert (ended.stdout, ended.stderr) == ("[]\n", "")
