"""What the kernels that take messages as objects reach: what they are bound to, and what they are called with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from formats.hosts import Host
from formats.message import NO_PROPERTIES, Message
from store.files import io
from store.files.background import Background
from store.status import PutStatus
from store.write.known import KnownTopic
from store.write.result import STORED, PutResult

if TYPE_CHECKING:
    from store.write.ordinary import OrdinaryPuts


class Kinds(NamedTuple):
    """What kernels tell kinds of values by: the same for all of them, and for all stores."""

    none: None = None
    no_properties: Mapping[str, str] = NO_PROPERTIES
    message_type: type = Message
    int_type: type = int
    text_type: type = str
    dict_type: type = dict
    bytes_type: type = bytes


KINDS = Kinds()


class PutContext(NamedTuple):
    """Of one store. `names`: the stored bytes of property names with their separator. `packed_host`: the eight bytes of
    `store_host`. `crc_function`: an address. `scratch`: the address of what `scratch_owner` owns, where properties are
    written first, because their length is not known before. What has a default is the same for all stores."""

    ordinary: OrdinaryPuts
    is_locked: Callable[[], bool]
    follower: Background
    wake: Callable[[], None]
    known_topics: Mapping[str, KnownTopic]
    names: Mapping[str, bytes]
    store_host: Host
    packed_host: bytes
    largest_body: int
    crc_function: int
    scratch: int
    scratch_owner: object
    # names of attributes that are read or set
    window_name: str = "window"
    born_host_name: str = "born_host"
    last_timestamp_name: str = "last_timestamp"
    wrote_name: str = "wrote_position"
    committed_name: str = "committed_position"
    store_timestamp_name: str = "store_timestamp"
    value_name: str = "value"
    is_idle_name: str = "is_idle"
    observer_name: str = "observer"
    io: ModuleType = io
    kinds: Kinds = KINDS
    true: bool = True
    empty: str = ""
    result_type: type = PutResult
    stored: PutStatus = STORED


class RowsContext(NamedTuple):
    """What the kernel that turns messages into rows is bound to. `names`: see PutContext."""

    names: Mapping[str, bytes]
    kinds: Kinds = KINDS


class RowsArguments(NamedTuple):
    """One call of it, for the rows [begin, end) of `messages`, of which the row `skipped` is unusual whatever it is.

    `columns`, `starts`, `ends` and `usual`: addresses of the tables of a BulkRows, whose columns have `rows` rows each;
    bodies are where they are, by address. `topics`: the numbers of topics; `hosts`: those of hosts, by the address of
    the object, 0 for a host that cannot be packed. `text`: address of `room` bytes for the stored properties of all.

    The kernel gives back `end`; or the first row whose topic, host or property name it does not know; or -1 - row for
    one whose properties do not fit into the room. What is before that row is filled in.
    """

    messages: tuple[Message, ...]
    begin: int
    end: int
    skipped: int
    rows: int
    columns: int
    starts: int
    ends: int
    usual: int
    topics: Mapping[str, int]
    hosts: Mapping[int, int]
    text: int
    room: int


def places_of(kind: type[Any], *names: str) -> list[int]:
    """Where these fields of a named tuple stand."""
    return [kind._fields.index(name) for name in names]
