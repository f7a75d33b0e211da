"""File systems made in a file and mounted for a test; each needs root, its mkfs and a loop device."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import run

_SIZE = 320 << 20
# name -> the command that makes it; for FUSE also the one that mounts it from a block device
MAKERS: dict[str, list[str]] = {
    "ext4-128": ["mkfs.ext4", "-q", "-F", "-I", "128"],
    "ext4-256": ["mkfs.ext4", "-q", "-F", "-I", "256"],
    "ext3": ["mkfs.ext3", "-q", "-F", "-I", "128"],
    "xfs": ["mkfs.xfs", "-q"],
    "btrfs": ["mkfs.btrfs", "-q"],
    "exfat-fuse": ["mkfs.exfat"],
    "ntfs-3g": ["mkfs.ntfs", "-q", "-F", "-Q"],
}
_FUSE = {"exfat-fuse": "mount.exfat-fuse", "ntfs-3g": "ntfs-3g"}
NAMES = (*MAKERS, "bindfs", "overlay")


@contextlib.contextmanager
def mounted(name: str, folder: Path) -> Iterator[Path]:
    """Mount a new file system of the kind `name` while the block runs; skip the test where that cannot be."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    folder.mkdir()
    place = folder / "mounted"
    place.mkdir()
    with contextlib.ExitStack() as ends:
        _mount(name, folder, place, ends)
        ends.callback(_quietly, ["umount", str(place)])
        yield place


def _mount(name: str, folder: Path, place: Path, ends: contextlib.ExitStack) -> None:
    if name == "bindfs":
        (folder / "bound").mkdir()
        _or_skip(["bindfs", str(folder / "bound"), str(place)])
        return
    if name == "overlay":
        _overlay(folder, place, ends, None)
        return
    image = folder / "image"
    image.touch()
    os.truncate(image, _SIZE)
    _or_skip([*MAKERS[name], str(image)])
    if name not in _FUSE:
        _or_skip(["mount", "-o", "loop", str(image), str(place)])
        return
    device = _or_skip(["losetup", "-f", "--show", str(image)]).strip()
    ends.callback(_quietly, ["losetup", "-d", device])
    _or_skip([_FUSE[name], device, str(place)])


@contextlib.contextmanager
def over_root(folder: Path) -> Iterator[Path]:
    """Mount what the file system of / has, with devices and processes; what is changed there is in memory alone."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    place = folder / "mounted"
    place.mkdir(parents=True)
    with contextlib.ExitStack() as ends:
        _overlay(folder, place, ends, Path("/"))
        ends.callback(_quietly, ["umount", str(place)])
        for name in ("dev", "proc"):
            _or_skip(["mount", "--bind", f"/{name}", str(place / name)])
            ends.callback(_quietly, ["umount", str(place / name)])
        yield place


def _overlay(folder: Path, place: Path, ends: contextlib.ExitStack, lower: Path | None) -> None:
    # an overlay cannot lie upon one: its layers are in memory
    layers = folder / "layers"
    layers.mkdir()
    _or_skip(["mount", "-t", "tmpfs", "none", str(layers)])
    ends.callback(_quietly, ["umount", str(layers)])
    for layer in ("lower", "upper", "work"):
        (layers / layer).mkdir()
    given = f"lowerdir={lower or layers / 'lower'},upperdir={layers}/upper,workdir={layers}/work"
    _or_skip(["mount", "-t", "overlay", "overlay", "-o", given, str(place)])


def _or_skip(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    ended = run(command)
    if ended.returncode != 0:
        pytest.skip(f"{command[0]} cannot do it here: {(ended.stderr or ended.stdout).strip()[:200]}")
    return str(ended.stdout)


def _quietly(command: list[str]) -> None:
    subprocess.run(command, check=False, capture_output=True, timeout=60)
