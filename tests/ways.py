"""What a job passes through: `python -m tests.ways VERB…` as rmqctl's verb, `python -m tests.ways pull STORE` as a
broker that answers a second pull. Prints to stderr, as JSON, how many modules run a function of their own, and how
often control passes from one module into another."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_ROOT = f"{Path(__file__).parents[1]}{os.sep}"
_OURS = ("rmqctl", "formats", "store", "network", "pipeline")
_PULLS = 8
_FUNCTION = 2
"""The flag CO_NEWLOCALS: code of a module has it not."""


class Ways:
    """Counts while it is `on`; `crossings` by the module that is entered."""

    def __init__(self) -> None:
        self.on = True
        self.crossings: Counter[str] = Counter()
        self._last: dict[int, str] = {}
        self._modules: dict[CodeType, str | None] = {}

    def enter(self, frame: FrameType, event: str, _: Any) -> None:
        """A profiler's function."""
        if event != "call" or not self.on:
            return
        code = frame.f_code
        if code not in self._modules:
            path = os.path.realpath(code.co_filename).removeprefix(_ROOT)
            is_ours = code.co_flags & _FUNCTION and code.co_name != "<module>" and path.split(os.sep)[0] in _OURS
            self._modules[code] = path if is_ours else None
        module = self._modules[code]
        if module is not None and self._last.get(threading.get_ident()) != module:
            self._last[threading.get_ident()] = module
            self.crossings[module] += 1

    def tell(self) -> None:
        """Print what was counted."""
        self.on = False
        found = {"modules": len(self.crossings), "crossings": self.crossings.total(), "of_each": self.crossings}
        print(json.dumps(found), file=sys.stderr)


def _verb(ways: Ways) -> None:
    import rmqctl.start

    real_exit = os._exit

    def leave(code: int) -> None:
        ways.tell()
        real_exit(code)

    vars(os)["_exit"] = leave
    sys.argv[0] = "rmqctl"
    sys.setprofile(ways.enter)
    try:
        rmqctl.start.main()
    finally:
        if ways.on:
            ways.tell()


def _pull(ways: Ways, store: Path) -> None:
    from rmqctl.network.remoting.codec import RemotingCommand, encode_frame
    from rmqctl.store.config.config import StoreConfig
    from tests.network.callers import pulling
    from tests.network.serving import serving_here
    from tests.network.test_cut_frames import _answer, _connected

    fields = {name: str(value) for name, value in pulling("TopicTest", 0, 0).items()}
    question = encode_frame(RemotingCommand(11, fields, b"", opaque=5))
    ways.on = False
    with serving_here(store, StoreConfig(), {}) as broker, _connected(broker.address) as connection:
        least: Counter[str] | None = None
        for _ in range(_PULLS):
            ways.crossings, ways.on = Counter(), True
            connection.sendall(question)
            assert _answer(connection).body
            # the way ends with the answer: what closes a broker is no part of it
            ways.on = False
            # what the broker does beside one of them is not in all of them
            least = ways.crossings if least is None or len(ways.crossings) < len(least) else least
        assert least is not None
        ways.crossings = least
    ways.tell()


if __name__ == "__main__":
    counting = Ways()
    threading.setprofile(counting.enter)
    if sys.argv[1] == "pull":
        _pull(counting, Path(sys.argv[2]))
    else:
        _verb(counting)
