"""What the tests run is counted by room, and what is less than promised is named."""

from __future__ import annotations

import sys
from pathlib import Path

from coverage import Coverage

from tests.processes import ROOT
from tests.processes import run as run_process
from tests.proof.covered import Covered, covered, missing, table

_PROGRAM = "from rmqctl.formats.properties import compression_type; compression_type(0)"


def test_what_a_process_ran_is_counted(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    data = tmp_path / "run"
    done = run_process([
        sys.executable, "-m", "coverage", "run", f"--rcfile={ROOT / 'pyproject.toml'}", f"--data-file={data}", program,
    ])  # fmt: skip
    assert done.returncode == 0, done.stderr
    recorded = Coverage(data_file=str(data), config_file=str(ROOT / "pyproject.toml"))
    recorded.combine([str(tmp_path)])
    one = covered(recorded)["formats/properties.py"]
    source = (ROOT / "formats/properties.py").read_text().splitlines()
    left = {source[number - 1].strip() for number in one.lines_left}
    assert "return (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT" in left
    assert "return None" in left, "the plain kind of compression_name"
    assert "return sys_flag & TRANSACTION_MASK" in left
    assert "COMPRESSION_LZ4 = 1" not in left
    assert one.lines > len(one.lines_left) > 0
    assert one.branches > len(one.branches_left) > 0


def test_rooms_are_added_up_and_what_is_less_than_promised_is_named() -> None:
    found = {
        "formats/message.py": Covered(10, 4, [7], ["3->5"]),
        "store/journal/entry.py": Covered(80, 20, [], []),
        "store/journal/log.py": Covered(50, 0, [], []),
        "rmqctl/main.py": Covered(100, 0, list(range(20)), []),
    }
    assert list(table(found))[2:] == [
        "| formats | 10 | 4 | 2 | 85.7 % |",
        "| store/journal | 130 | 20 | 0 | 100.0 % |",
        "| rmqctl | 100 | 0 | 20 | 80.0 % |",
        "| all | 240 | 24 | 22 | 91.7 % |",
    ]
    assert list(missing(found)) == [
        "91.7 % of all lines and branches are run, 95 % should be",
        "formats/message.py: not run: 7, 3->5",
    ]
    del found["rmqctl/main.py"], found["formats/message.py"]
    assert not list(missing(found))
