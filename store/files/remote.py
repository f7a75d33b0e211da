"""Addresses of stores, such as s3://bucket/store: what is one, and what is a path by another name (file://)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import RefusedError, WriteFailedError
from rmqctl.store.files.reading import is_file
from rmqctl.store.files.remote_file_system import opened, retried

# what fsspec reads, by the words of Hadoop too
SCHEMES = ("s3", "s3a", "s3n", "hdfs", "webhdfs", "swebhdfs", "gs", "gcs", "abfs", "abfss", "az")
LOCAL = "file"
# names that stand directly below a store
_OF_STORES = "commitlog consumequeue consumequeue_ext batchconsumequeue index config timerlog timerwheel".split()


def is_address(path: str | os.PathLike[str]) -> bool:
    """Whether it names something on a server. file:// does not: it is a path by another name."""
    return _parts(path)[0] in SCHEMES


def address_of(path: str | os.PathLike[str]) -> str:
    """Return the address as written, with the slashes that pathlib removes: `s3://bucket/store`."""
    scheme, rest = _parts(path)
    return f"{scheme}://{rest.strip('/')}"


def reachable(path: str | os.PathLike[str]) -> Path:
    """Return the path for reading a store: a path as it is (file:// too), an address as the folder that represents it.

    An address is listed when it is first asked for in a process. NotAStoreError where nothing is there,
    UnreadableError where the server does not answer, UnsupportedError where no package reads it.
    """
    if not is_address(path):
        return without_scheme(path)
    from rmqctl.store.files.remote_files import folder_for

    return folder_for(address_of(path))


def list_anew(path: str | os.PathLike[str]) -> None:
    """List an address again, ignoring what this process knows of it; do nothing for a path. No store may be open there
    in this process. Errors as `reachable`."""
    if is_address(path):
        from rmqctl.store.files.remote_files import look_again

        look_again(address_of(path))


def reachable_file(name: str, store: str) -> Path:
    """Where a file of a store can be read. `name` is a path, or begins with `store`, which is an address then."""
    return reachable(store) / name.removeprefix(store + "/") if is_address(name) else without_scheme(name)


def reachable_loose(path: str | os.PathLike[str]) -> Path:
    """Where any file can be read: of one at an address all is listed that seems to be its store, else its folder."""
    if not is_address(path):
        return without_scheme(path)
    parts = address_of(path).split("/")
    # behind scheme, nothing, and bucket or host
    store = next((place for place, part in enumerate(parts) if place > 2 and part in _OF_STORES), len(parts) - 1)
    return reachable("/".join(parts[:store])).joinpath(*parts[store:])


def as_written(path: str | os.PathLike[str]) -> str:
    """A path as it is, and an address with the slashes that pathlib takes out of it."""
    return address_of(path) if is_address(path) else os.fspath(path)


def absolute_place(path: str | os.PathLike[str]) -> str:
    """An address as it is written, and a path (file:// too) seen from any working directory."""
    if is_address(path):
        return address_of(path)
    return str(without_scheme(path).absolute())


def without_scheme(path: str | os.PathLike[str]) -> Path:
    """A path, of `file:///data/store` too."""
    scheme, rest = _parts(path)
    return Path("/" + rest) if scheme == LOCAL else Path(path)


def _parts(path: str | os.PathLike[str]) -> tuple[str, str]:
    """The scheme and what follows it; "" for a path. One slash is what pathlib leaves of two."""
    scheme, separator, rest = os.fspath(path).partition(":/")
    return (scheme, rest.lstrip("/")) if separator and (scheme in SCHEMES or scheme == LOCAL) else ("", "")


# What was written here, brought to an address: the target of an export.


@contextmanager
def uploaded(address: str) -> Iterator[Path]:
    """A path to write a new file or folder to, of the same name as the address; at the end of the block it is brought
    there, if nothing was raised.

    RefusedError where something is there already, WriteFailedError. Takes as much space below the system's folder for
    temporary files as the written data.
    """
    from rmqctl.store.files.outputs import temporary_folder

    system, root = opened(address)
    try:
        system.info(root)
    except FileNotFoundError:
        pass
    except Exception as error:
        raise _failed(error, address) from error
    else:
        raise RefusedError("is there already", file=address, hint="name another place, or remove it first")
    with temporary_folder("rmqctl-upload-") as folder:
        path = folder / address.rpartition("/")[2]
        yield path
        for made in _in_order(path):
            target = root + made.as_posix()[len(path.as_posix()) :]
            _put(system, made, target, address)


def _in_order(path: Path) -> list[Path]:
    files = [one for one in (path, *path.rglob("*")) if is_file(one)]
    return sorted(files, key=lambda one: (one.name == "_SUCCESS", one.as_posix()))


def _put(system: Any, made: Path, target: str, address: str) -> None:
    def bring() -> None:
        system.makedirs(target.rpartition("/")[0], exist_ok=True)
        system.put_file(str(made), target)

    try:
        retried(bring)
    except Exception as error:
        raise _failed(error, address) from error


def _failed(error: Exception, address: str) -> WriteFailedError:
    said = (str(error) or type(error).__name__).splitlines()[0]
    hint = "check the endpoint, the credentials and the free space; parts that were uploaded before may remain"
    return WriteFailedError(f"cannot be written: {said}", file=address, hint=hint)
