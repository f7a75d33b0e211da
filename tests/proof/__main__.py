"""`python -m tests.proof [NAME]…`: the proofs at full size, a table of what they found, and how to see it again."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from tests.processes import end_all
from tests.proof.proving import PROOFS, prove, prove_in_processes, table

_MOST_TOLD = 50


def main() -> int:
    """Run them; 1 if any case failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*PROOFS, []], help="which proofs; all without")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, help="how many cases of each")
    parser.add_argument("--only", help="the case of this name alone, with its traceback")
    parser.add_argument("--share", type=_share, default=(0, 1), help="2/5: the second fifth of the cases of each")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="at the same time; as many as there are processors"
    )
    parser.add_argument(
        "--kept", type=Path, metavar="FILE", help="note what is done there, and go on with what is not noted there yet"
    )
    parser.add_argument("--as-json", action="store_true", help=argparse.SUPPRESS)  # what such a process says
    given = parser.parse_args()
    outcomes = {}
    with tempfile.TemporaryDirectory(prefix="rmqctl-proof-") as folder:
        for name in given.names or PROOFS:
            count = given.count or PROOFS[name].in_proof
            place = Path(folder) / name
            if given.only is not None or given.as_json or (given.processes == 1 and given.kept is None):
                outcomes[name] = prove(
                    name, count, given.seed, place, only=given.only, most_failures=_MOST_TOLD, share=given.share
                )
            else:
                outcomes[name] = prove_in_processes(name, count, given.seed, given.processes, given.share, given.kept)
            if given.as_json:
                print(json.dumps(outcomes[name]._asdict()))
                continue
            for failure in outcomes[name].failures:
                print(f"{name}: {failure}", file=sys.stderr)
            print(f"{name}: {outcomes[name].tried:,} cases", file=sys.stderr)
    if given.as_json:
        return 0
    print("\n".join(table(outcomes)))
    return 1 if any(outcome.failures for outcome in outcomes.values()) else 0


def _share(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not 1 <= int(part) <= int(parts):
        raise ValueError(text)
    return int(part) - 1, int(parts)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; with --kept FILE the same command goes on where it was")
    finally:
        end_all()
