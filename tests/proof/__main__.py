"""`python -m tests.proof [NAME]…`: the proofs at full size, a table of what they found, and how to see it again."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.proof.proving import PROOFS, prove, table

_MOST_TOLD = 50


def main() -> int:
    """Run them; 1 if any case failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*PROOFS, []], help="which proofs; all without")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, help="how many cases of each")
    parser.add_argument("--only", help="the case of this name alone, with its traceback")
    given = parser.parse_args()
    outcomes = {}
    with tempfile.TemporaryDirectory(prefix="rmqctl-proof-") as folder:
        for name in given.names or PROOFS:
            count = given.count or PROOFS[name].in_proof
            outcomes[name] = prove(
                name, count, given.seed, Path(folder) / name, only=given.only, most_failures=_MOST_TOLD
            )
            for failure in outcomes[name].failures:
                print(f"{name}: {failure}", file=sys.stderr)
            print(f"{name}: {outcomes[name].tried:,} cases", file=sys.stderr)
    print("\n".join(table(outcomes)))
    return 1 if any(outcome.failures for outcome in outcomes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
