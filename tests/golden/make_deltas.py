"""Turn folders of full golden archives into the small ones of this folder.

Run from the project's root:

    python -m tests.golden.make_deltas FOLDER...

A folder holds, for each golden, NAME.tar.xz, NAME.props and NAME.truth.jsonl.xz (and NAME.admin.json for stores of a
whole broker). A store whose truth names a base that is among the folders, or already here, becomes NAME.delta.json
against it; any other is kept whole. Every delta is applied to a fresh copy of its base and compared with the archive
(names, bytes, mtimes) before it is kept. Goldens of which the folders say nothing stay as they are. Of a truth of
5.5.0 only what a start is held against is kept: the summary, the queues, and where messages lie.
"""

from __future__ import annotations

import argparse
import json
import lzma
import shutil
import sys
import tempfile
from pathlib import Path

from tests.golden import delta
from tests.goldens import FOLDER, TRUTH_SUFFIX, file_of, tree_state, unpack


def base_in_truth(truth: Path) -> str | None:
    """The base store that the truth's summary, its first line, names."""
    with lzma.open(truth, "rt", encoding="utf-8") as file:
        base: str | None = json.loads(file.readline())["scenario"].get("base")
    return base


_OF_A_MESSAGE = ("kind", "phyOffset", "storeSize", "topic", "queueId", "queueOffset", "sysFlag", "checkOk")
_OF_A_QUEUE = ("kind", "topic", "queueId", "min", "max", "cqType", "unitsSha256")


def shorten(truth: Path) -> None:
    """Leave in a truth what a start is held against."""
    with lzma.open(truth, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    kept = {"msg": _OF_A_MESSAGE, "queue": _OF_A_QUEUE}
    with lzma.open(truth, "wt", encoding="utf-8", preset=9) as file:
        for row in rows:
            if row["kind"] in ("summary", "sameAsBase"):
                row.pop("javaLog", None)
                file.write(json.dumps(row) + "\n")
            elif row["kind"] in kept:
                file.write(json.dumps({name: row[name] for name in kept[row["kind"]] if name in row}) + "\n")


class Maker:
    """Carries goldens over from full archives; `archives` maps each name to its NAME.tar.xz."""

    def __init__(self, archives: dict[str, Path], work: Path) -> None:
        self.archives = archives
        self.work = work

    def store(self, name: str) -> Path | None:
        """The full store `name`, unpacked on first use; None if there is no archive of it."""
        store = self.work / name
        if not store.exists():
            archive = self.archives.get(name, file_of(name, ".tar.xz"))
            if not archive.exists():
                return None
            unpack(archive, self.work)
        return store

    def keep(self, name: str) -> str:
        """Put golden `name` into this folder; returns how."""
        source = self.archives[name].parent
        base = base_in_truth(source / (name + TRUTH_SUFFIX))
        base_store = None if base is None else self.store(base)
        made = None
        wanted = [TRUTH_SUFFIX, ".admin.json"]
        if base is not None and base_store is not None:
            made = self.verified_delta(name, base, base_store)
            if (source / f"{name}.props").read_bytes() != self.props(base).read_bytes():
                wanted.append(".props")
        else:
            wanted += [".tar.xz", ".props"]
        for suffix in (TRUTH_SUFFIX, ".admin.json", ".tar.xz", ".props", ".delta.json"):
            file_of(name, suffix).unlink(missing_ok=True)
            if suffix in wanted and (source / (name + suffix)).exists():
                shutil.copyfile(source / (name + suffix), file_of(name, suffix))
        if file_of(name, "").parent != FOLDER:
            shorten(file_of(name, TRUTH_SUFFIX))
        if made is None:
            return "whole"
        file_of(name, ".delta.json").write_text(made.to_json(), encoding="utf-8")
        return f"delta against {base}"

    def props(self, base: str) -> Path:
        """The configuration of the store `base`, from where its archive is."""
        return self.archives.get(base, file_of(base, ".tar.xz")).parent / f"{base}.props"

    def verified_delta(self, name: str, base: str, base_store: Path) -> delta.Delta:
        """The delta of `name`, read back from JSON and tried; SystemExit if that does not give the archived store."""
        store = self.store(name)
        assert store is not None
        made = delta.Delta.from_json(delta.difference(base, base_store, store).to_json())
        trial = self.work / "trial"
        shutil.copytree(base_store, trial)
        delta.apply(made, trial)
        if tree_state(trial) != tree_state(store):
            sys.exit(f"{name}: {base} with the delta is not the archived store")
        shutil.rmtree(trial)
        shutil.rmtree(store)
        return made


def main() -> None:
    """Carry all goldens of the folders named on the command line over into this folder."""
    parser = argparse.ArgumentParser(description="Make the small goldens from folders of full archives.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    folders = [folder.resolve() for folder in parser.parse_args().folders]
    if FOLDER.resolve() in folders:
        parser.error("this folder holds the small goldens; name folders of full ones")
    archives = {
        path.name.removesuffix(".tar.xz"): path
        for folder in folders
        for path in sorted(folder.glob("*.tar.xz"))
        if not path.name.endswith(".after.tar.xz")
    }
    with tempfile.TemporaryDirectory() as work:
        maker = Maker(archives, Path(work))
        bases = {name: base_in_truth(path.with_name(name + TRUTH_SUFFIX)) for name, path in archives.items()}
        # Whole stores first, so that a run that fails never leaves a delta whose base is not here yet.
        for name in sorted(archives, key=lambda name: (bases[name] is not None, name)):
            sys.stderr.write(f"{name}: {maker.keep(name)}\n")


if __name__ == "__main__":
    main()
