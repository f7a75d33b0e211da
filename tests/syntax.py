"""What a piece of source calls and names, and whether a call of it changes files: for the rules of test_tidy.py."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, TypeVar

Node = TypeVar("Node", bound=ast.AST)


def nodes(tree: ast.Module, kind: type[Node]) -> Sequence[Node]:
    """All nodes of this kind. A tree is walked once, whatever is asked of it."""
    return _by_kind(tree)[kind]


@functools.cache
def _by_kind(tree: ast.Module) -> defaultdict[type, list[Any]]:
    found: defaultdict[type, list[Any]] = defaultdict(list)
    for node in ast.walk(tree):
        found[type(node)].append(node)
    return found


def dotted(node: ast.expr) -> str:
    """`a.b.c` of a name or attribute; `?` stands for anything that is neither."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else "?"


_OS_CHANGES = frozenset(
    "write writev pwrite pwritev truncate ftruncate rename renames replace remove unlink rmdir removedirs mkdir "
    "makedirs posix_fallocate link symlink utime chmod chown fchmod mkfifo mknod sendfile copy_file_range "
    "setxattr".split()
)
_PATH_CHANGES = frozenset(
    "write_text write_bytes unlink mkdir rmdir rename touch hardlink_to symlink_to tofile".split()
)
_WRITE_FLAGS = frozenset("O_WRONLY O_RDWR O_CREAT O_TRUNC O_APPEND O_TMPFILE".split())


def names(node: ast.AST) -> set[str]:
    found = {child.attr for child in ast.walk(node) if isinstance(child, ast.Attribute)}
    return found | {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}


def _argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    named = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    return named or (call.args[position] if len(call.args) > position else None)


def _opens_for_writing(mode: ast.expr | None) -> bool:
    if mode is None:
        return False
    return not (isinstance(mode, ast.Constant) and isinstance(mode.value, str) and not set(mode.value) & set("wax+"))


def changes_files(call: ast.Call, from_writer: set[str]) -> bool:
    name = dotted(call.func)
    first, _, last = name.partition(".")[0], *name.rpartition(".")[1:]
    if first in from_writer:
        return False
    if name in ("open", "io.open"):
        return _opens_for_writing(_argument(call, 1, "mode"))
    if name == "os.open":
        return bool(names(call) & _WRITE_FLAGS)
    if name.startswith(("os.", "shutil.", "tempfile.")):
        return not name.startswith("os.") or last in _OS_CHANGES
    if name == "mmap.mmap":
        rights = [_argument(call, 4, "access"), _argument(call, 3, "prot")]
        return not any(rights) or bool(names(call) & {"ACCESS_WRITE", "PROT_WRITE"})
    if last == "memmap":
        mode = _argument(call, 2, "mode")
        return not (isinstance(mode, ast.Constant) and mode.value in ("r", "c"))
    if "." in name and last == "open":
        return _opens_for_writing(_argument(call, 0, "mode"))
    if last == "replace":  # Path.replace takes one argument, str.replace two, dataclasses.replace keywords
        return "." in name and len(call.args) == 1 and not call.keywords
    return "." in name and last in _PATH_CHANGES
