"""What was written here, brought to an address: the target of an export."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import RefusedError, WriteFailedError
from rmqctl.store.files.presence import is_file
from rmqctl.store.outputs.temporary import temporary_folder
from rmqctl.store.remote.file_system import opened, retried


@contextmanager
def uploaded(address: str) -> Iterator[Path]:
    """A path to write a new file or folder to, of the same name as the address; at the end of the block it is brought
    there, if nothing was raised.

    RefusedError where something is there already, WriteFailedError. Takes as much room below the system's folder for
    temporary files as what is written.
    """
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
    hint = "check the endpoint, the credentials and the room there; what was brought before may lie there"
    return WriteFailedError(f"cannot be written: {said}", file=address, hint=hint)
