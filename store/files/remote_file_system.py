"""Folders of files on a server through fsspec: one listing, and ranges of files that are still what was listed."""

from __future__ import annotations

import importlib
import importlib.util
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from rmqctl.formats.errors import NotAStoreError, RemovedError, UnreadableError, UnsupportedError
from rmqctl.store.files.background import sleep
from rmqctl.store.files.reading import is_file
from rmqctl.store.status import REMOTE, how_to_add

# Which paths and addresses are patterns, and what to do about one where there can only be one store.

ONE_STORE = "patterns name the stores of `rmqctl sql` and of Spark; name one store here"
"""What to do about a pattern where there can only be one store."""

_WILD = frozenset("*?[{")


def is_wild(path: str | os.PathLike[str]) -> bool:
    """Return whether it has *, ?, [ or {, as a pattern."""
    return not _WILD.isdisjoint(os.fspath(path))


Result = TypeVar("Result")

ATTEMPTS = 5
"""How often something is asked of a server in all that answers with an error, too slowly or not at all."""

_FIRST_PAUSE_S = 0.1
_NEXT_PAUSE = 3
# nothing that another attempt could change
_FINAL = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError, ImportError, ValueError, TypeError)
_FINAL_NAMES = ("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "ParamValidationError")
_WEBHDFS_PORT = 9870
_ARROW = "fsspec.implementations.arrow"
# of botocore. Attempts are counted here and nowhere else; and ranges have no checksum of the server's, of which servers
# that only speak as S3 does know nothing
_S3_SETTINGS = {
    "connect_timeout": 10,
    "read_timeout": 60,
    "retries": {"max_attempts": 0},
    "request_checksum_calculation": "when_required",
    "response_checksum_validation": "when_required",
}


# how servers are reached, by the name that fsspec has for their kind
_options: dict[str, Mapping[str, Any]] = {}


def use_storage_options(options: Mapping[str, Mapping[str, Any]]) -> None:
    """From now on this process reaches servers with these options of fsspec, by `s3`, `webhdfs` and the like. Without
    any, environment and files of settings say how, as fsspec and botocore read them."""
    _options.update(options)


def storage_options() -> dict[str, Mapping[str, Any]]:
    """The options in use, for another process."""
    return dict(_options)


class Listed(NamedTuple):
    """A file on a server: its path below the folder, bytes, mtime (ns; None if unknown), and a value that changes with
    its content."""

    name: str
    size: int
    modified_ns: int | None
    version: str


class RemoteFiles(Protocol):
    """A folder of files on a server. Errors name addresses: NotAStoreError, UnreadableError, RemovedError."""

    address: str

    def listed(self) -> tuple[list[Listed], list[str]]:
        """All files below the folder, and the folders in it, as far as the server has such a thing."""

    def below(self, folder: str) -> RemoteFiles:
        """The same for a folder in it."""

    def beside(self, ending: str) -> RemoteFiles:
        """The same for the folder whose name is this one's with an ending."""

    def read(self, file: Listed, begin: int, end: int) -> bytes:
        """Exactly the bytes [begin, end) of a file that is still what was listed."""


class FsspecFiles:
    """A folder that fsspec reads. `requests` counts what was asked, `bytes_read` what came."""

    def __init__(self, address: str) -> None:
        """UnsupportedError where no package reads such addresses."""
        self.address = address
        self.requests = 0
        self.bytes_read = 0
        self._counting = threading.Lock()
        self._system, self._root = opened(address)

    def below(self, folder: str) -> FsspecFiles:
        """As RemoteFiles says."""
        return FsspecFiles(f"{self.address}/{folder}")

    def beside(self, ending: str) -> FsspecFiles:
        """As RemoteFiles says."""
        return FsspecFiles(self.address + ending)

    def listed(self) -> tuple[list[Listed], list[str]]:
        """As RemoteFiles says."""
        found = self._asked(self._list, self.address)
        files, folders = [], []
        for path, status in found.items():
            name = self._system._strip_protocol(path)[len(self._root) :].strip("/")
            if not name:
                continue
            if status["type"] == "directory":
                folders.append(name)
            elif not name.endswith("/"):
                files.append(Listed(name, int(status["size"] or 0), _modified_ns(status), _version(status)))
        if not files and not folders:
            hint = ONE_STORE if is_wild(self.address) else "check its spelling, and the endpoint"
            raise NotAStoreError("there is nothing at this address", file=self.address, hint=hint)
        return files, folders

    def folders_in(self, folder: str) -> list[str]:
        """The names of the folders directly below one, in their order; none where there is nothing. `folder` as it
        follows the address, "" for the address itself. UnreadableError."""
        address = f"{self.address}/{folder}".rstrip("/")
        path = f"{self._root}/{folder}".rstrip("/")
        try:
            found = self._asked(lambda: self._system.ls(path, detail=True, refresh=True), address)
        except (NotAStoreError, RemovedError):
            return []
        names = [one["name"].rstrip("/").rpartition("/")[2] for one in found if one["type"] == "directory"]
        return sorted(name for name in names if name)

    def _list(self) -> dict[str, Any]:
        if "s3" in _protocols(self._system):
            # a thousand files with each request
            found: dict[str, Any] = self._system.find(self._root, withdirs=True, detail=True)
            return found
        # fsspec's own `find` takes a folder that cannot be listed for an empty one
        found, waiting = {}, [self._root]
        while waiting:
            for status in self._system.ls(waiting.pop(), detail=True, refresh=True):
                found[status["name"]] = status
                if status["type"] == "directory":
                    waiting.append(status["name"])
        return found

    def read(self, file: Listed, begin: int, end: int) -> bytes:
        """As RemoteFiles says."""
        path = f"{self._root}/{file.name}"
        name = f"{self.address}/{file.name}"
        data = self._asked(lambda: self._range(path, file, begin, end), name)
        if data is None:
            raise _changed(name)
        if len(data) != end - begin:
            raise UnreadableError(f"{len(data)} of {end - begin} bytes came from the server", file=name)
        with self._counting:
            self.bytes_read += len(data)
        return data

    def _range(self, path: str, file: Listed, begin: int, end: int) -> bytes | None:
        """The bytes; None if the file is another one by now."""
        if "s3" in _protocols(self._system):
            return _s3_range(self._system, path, file.version, begin, end)
        # what is read from 0 Arrow's file systems open for no seeking, and then ask where they are
        how = {"seekable": True} if type(self._system).__module__ == _ARROW else {}
        data: bytes = self._system.cat_file(path, start=begin, end=end, **how)
        # looked at afterwards: what came was read before, so it is of the file that was listed
        status = self._system.info(path)
        return data if (int(status["size"]), _version(status)) == (file.size, file.version) else None

    def _asked(self, ask: Callable[[], Result], name: str) -> Result:
        """What the server answers. UnreadableError, RemovedError, NotAStoreError."""

        def counted() -> Result:
            with self._counting:
                self.requests += 1
            return ask()

        try:
            return retried(counted)
        except Exception as error:
            raise _as_ours(error, name, is_folder=name == self.address) from error


def retried(ask: Callable[[], Result]) -> Result:
    """What a server answers, asked again, after pauses, where that may help. Raises what the last attempt raised."""
    pause = _FIRST_PAUSE_S
    for _ in range(ATTEMPTS - 1):
        try:
            return ask()
        except Exception as error:
            if isinstance(error, _FINAL) or type(error).__name__ in _FINAL_NAMES:
                raise
        sleep(pause)
        pause *= _NEXT_PAUSE
    return ask()


def opened(address: str) -> tuple[Any, str]:
    """fsspec's file system for an address, and the path in it. UnsupportedError."""
    scheme, _, rest = address.partition("://")
    kind = "webhdfs" if "hdfs" in scheme else "s3" if scheme in ("s3", "s3a", "s3n") else scheme
    options = dict(_options.get(kind, {}))
    try:
        fsspec = importlib.import_module("fsspec")
        if kind == "webhdfs":
            return _hadoop(fsspec, scheme, rest, options)
        if kind == "s3":
            settings = {**_S3_SETTINGS, **options.pop("config_kwargs", {})}
            options |= {"config_kwargs": settings, "use_listings_cache": False}
            system = fsspec.filesystem("s3", **options, skip_instance_cache=True)
            system.retries = 1
            return system, rest
        system = fsspec.filesystem(scheme, **options)
        return system, str(system._strip_protocol(address))
    except ImportError as error:
        # fsspec itself says which package the others need
        hint = REMOTE if kind in ("s3", "webhdfs") else how_to_add(error.name) or str(error)
        raise UnsupportedError(f"nothing is installed that reads {scheme}://", file=address, hint=hint) from error
    except (ValueError, TypeError) as error:
        raise UnsupportedError(f"cannot be opened: {error}", file=address) from error


def _hadoop(fsspec: Any, scheme: str, rest: str, options: dict[str, Any]) -> tuple[Any, str]:
    """HDFS by Hadoop's own protocol where its library is, whose port is that of hdfs://; else by WebHDFS.
    UnreadableError where that library cannot be loaded, or does not connect."""
    host, _, path = rest.partition("/")
    name, _, port = host.partition(":")
    user = os.environ.get("HADOOP_USER_NAME")
    if scheme == "hdfs" and has_hadoop_client():
        given = {"host": name or "default", "port": int(port or 0), "user": user, **_options.get("hdfs", {})}
        try:
            return fsspec.filesystem("hdfs", **given, skip_instance_cache=True), f"/{path}"
        except OSError as error:
            hint = "check JAVA_HOME and CLASSPATH (`hadoop classpath --glob`), or write webhdfs://HOST:PORT"
            said = f"Hadoop's client cannot open it: {error}"
            raise UnreadableError(said, file=f"hdfs://{rest}", hint=hint) from error
    given = {"port": _WEBHDFS_PORT, "user": user, "host": name, **options}
    if port and scheme != "hdfs":
        given["port"] = int(port)
    system = fsspec.filesystem("webhdfs", use_https=scheme == "swebhdfs", **given, skip_instance_cache=True)
    return system, f"/{path}"


def has_hadoop_client() -> bool:
    """Whether Arrow finds Hadoop's library, which speaks its own protocol: libhdfs of an installed client."""
    home = os.environ.get("HADOOP_HOME")
    places = (os.environ.get("ARROW_LIBHDFS_DIR"), home and os.path.join(home, "lib", "native"))
    is_there = any(place and is_file(os.path.join(place, "libhdfs.so")) for place in places)
    return is_there and importlib.util.find_spec("pyarrow") is not None


def _protocols(system: Any) -> tuple[str, ...]:
    protocol = system.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _s3_range(system: Any, path: str, version: str, begin: int, end: int) -> bytes | None:
    """A range of an object with this ETag, in one request; None if it has another one by now."""
    bucket, key, _ = system.split_path(path)

    async def fetched() -> bytes:
        answer = await system._call_s3(
            "get_object", Bucket=bucket, Key=key, Range=f"bytes={begin}-{end - 1}", IfMatch=version
        )
        async with answer["Body"] as body:
            data: bytes = await body.read()
            return data

    sync = importlib.import_module("fsspec.asyn").sync
    try:
        found: bytes = sync(system.loop, fetched)
    except OSError as error:
        if _status(error) == 412:
            return None
        raise
    return found


def _status(error: BaseException) -> int | None:
    """Return the HTTP status of an error of s3fs or of its cause."""
    cause: BaseException | None = error
    while cause is not None:
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            found = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return None if found is None else int(found)
        cause = cause.__cause__
    return None


def _version(status: Mapping[str, Any]) -> str:
    return str(status.get("ETag") or status.get("etag") or _modified_ns(status))


def _modified_ns(status: Mapping[str, Any]) -> int | None:
    for name in ("mtime", "LastModified", "last_modified", "modificationTime", "modified", "created"):
        found: Any = status.get(name)
        if hasattr(found, "timestamp"):  # a datetime
            return int(found.timestamp() * 1000) * 1_000_000
        if isinstance(found, int | float):
            # ms of HDFS, s of others
            return int(found) * 1_000_000 if name == "modificationTime" else int(found * 1000) * 1_000_000
    return None


def _changed(name: str) -> UnreadableError:
    return UnreadableError(
        "was replaced while the store was read", file=name, hint="run the command again, on what is there now"
    )


def _as_ours(error: Exception, name: str, *, is_folder: bool) -> UnreadableError | NotAStoreError | UnsupportedError:
    said = (str(error) or type(error).__name__).splitlines()[0]
    if isinstance(error, FileNotFoundError):
        if is_folder:
            hint = ONE_STORE if is_wild(name) else "check its spelling"
            return NotAStoreError("there is nothing at this address", file=name, hint=hint)
        return RemovedError("was removed while the store was read", file=name, hint="run the command again")
    if isinstance(error, ImportError):
        return UnsupportedError(f"cannot be read: {said}", file=name, hint=REMOTE)
    if isinstance(error, PermissionError) or type(error).__name__ in _FINAL_NAMES:
        hint = "check the credentials: AWS_ACCESS_KEY_ID and the like, or HADOOP_USER_NAME"
        return UnreadableError(f"the server refuses to show it: {said}", file=name, hint=hint)
    hint = "check the endpoint (AWS_ENDPOINT_URL), the network and the server, and run the command again"
    if name.startswith("hdfs://") and not has_hadoop_client():
        hint = (
            f"no Hadoop client is installed here (HADOOP_HOME or ARROW_LIBHDFS_DIR with libhdfs.so), so WebHDFS was "
            f"asked, at port {_WEBHDFS_PORT}: write webhdfs://HOST:PORT for another one"
        )
    return UnreadableError(f"cannot be read, asked {ATTEMPTS} times: {said}", file=name, hint=hint)
