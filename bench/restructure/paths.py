"""Write the new paths of modules into tests, lists and documents, after a plan was carried out.

python -m bench.restructure.paths PLAN
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from bench.restructure.names import dotted
from bench.restructure.plan import ROOT, targets_of

_PATH = re.compile(r"\b((?:formats|store|network|pipeline|rmqctl)/[a-z_0-9/]+)\.py")
_DOTTED = re.compile(r"rmqctl(?:\.[A-Za-z_0-9]+)+")
_TEXTS = ("docs/*.md", "*.md", "tests/**/*.md", "tests/**/*.txt", "pyproject.toml", "setup.py", "Makefile")
_MODULES = ("*/**/*.py",)


def main() -> None:
    """Rewrite every text that names a module of the plan given."""
    moved = targets_of(Path(sys.argv[1]).read_text(encoding="utf-8"))
    modules = {dotted(source): dotted(target) for source, target in moved.items()}

    def path(match: re.Match[str]) -> str:
        return f"{moved.get(match[1], match[1])}.py"

    def name(match: re.Match[str]) -> str:
        module, _, attribute = match[0].rpartition(".")
        whole = modules.get(match[0])
        return whole or (f"{modules[module]}.{attribute}" if module in modules else match[0])

    for pattern in (*_TEXTS, *_MODULES):
        for file in sorted(ROOT.glob(pattern)):
            if "restructure" in file.parts or ".venv" in file.parts or file.resolve() != file:
                continue
            before = file.read_text(encoding="utf-8")
            after = _PATH.sub(path, before)
            after = after if pattern in _MODULES else _DOTTED.sub(name, after)
            if after != before:
                file.write_text(after, encoding="utf-8")
                print(file.relative_to(ROOT))


if __name__ == "__main__":
    main()
