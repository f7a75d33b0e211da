"""Config JSON as each RocketMQ version's own parser takes it: fastjson 1.2.69 and 1.2.83, fastjson2 2.0.59.

These parsers take more than JSON: comments, single quotes, bare names and so on. What each of them takes was asked of
the parsers themselves (tests/store/config_forms.jsonl).
"""

from __future__ import annotations

import contextlib
import enum
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from rmqctl.formats.config_json import MAXIMUM_DEPTH, MAXIMUM_SIZE, parse_config_json
from rmqctl.formats.errors import CorruptError
from rmqctl.store.config.releases import FASTJSON2, RELEASES

_ALL = frozenset(RELEASES)
_FASTJSON2 = frozenset(name for name, release in RELEASES.items() if release.parser == FASTJSON2)
_FASTJSON = _ALL - _FASTJSON2
# 1.2.69 takes less
_NEWER = frozenset(name for name, release in RELEASES.items() if release.parser != "1.2.69")


class Form(enum.Enum):
    """A form that plain JSON does not have: its name, the versions whose parser takes it, and those (`otherwise`) that
    load the file and pass over what it says."""

    MARK = "a byte order mark", _ALL
    COMMENT = "a comment", _ALL
    COMMENT_AT_VALUE = "a comment beside a value", _FASTJSON
    SINGLE_QUOTES = "single quotes", _ALL
    SINGLE_QUOTED_WORD = "single quotes around one of a list of words", _FASTJSON
    LAST_COMMA = "a comma before a closing brace", _ALL
    EXTRA_COMMA = "a comma too many", _FASTJSON
    COMMA_AFTER_MAP = "a comma too many after a table", _ALL
    BARE_NAME = "a name without quotes", _FASTJSON
    SEMICOLON = "a semicolon in place of a comma", _FASTJSON
    MISSING_COMMA_IN_NUMBERS = "a missing comma", _ALL
    MISSING_COMMA = "a missing comma between members", _FASTJSON2
    MISSING_COLON = "a missing colon", _FASTJSON2
    CONTROL = "a control character inside text", _ALL
    ESCAPE = "an escape that JSON does not have", _ALL
    WRONG_ESCAPE = "an escape without its hexadecimal digits", _FASTJSON2
    NUMBER = "a number in another form", _ALL
    TEXT_NUMBER = "a number in quotes", _ALL
    TEXT_FRACTION = "a fraction in quotes", _FASTJSON2
    TEXT_SPACE = "a space behind a number in quotes", _FASTJSON2
    TRUTH_FOR_NUMBER = "true or false in place of a number", _NEWER
    NULL_FOR_NUMBER = "null or no text in place of a number", _FASTJSON, _FASTJSON2
    TYPE = "a name @type", _NEWER
    WORD = "a word in place of a value", _FASTJSON
    SPACE = "a control character between values", _ALL
    ODD_SPACE = "white space that JSON does not have", _FASTJSON2
    COMMA_AFTER = "a comma after the value", _FASTJSON2
    SET = "a set", _ALL
    OTHER_SPELLING = "a name in another spelling", _FASTJSON, _FASTJSON2
    TABLE_TWICE = "a table that is there twice", _NEWER, _ALL - _NEWER
    BARE_IN_UNKNOWN = "a name without quotes in a table that it does not know", _FASTJSON
    MISSING_BRACE = "a missing opening brace", _FASTJSON2
    STRAY = "a stray character behind a brace", _FASTJSON
    NO_OBJECT = "something else in place of an object", _ALL - _NEWER
    NUMBER_FOR_NAME = "a number in place of a name", _FASTJSON2
    TEXT_FOR_OBJECT = "a name in quotes in place of an object", _FASTJSON
    ENCODING = "bytes that are not UTF-8", _ALL

    def __init__(self, label: str, versions: frozenset[str], otherwise: frozenset[str] = frozenset()) -> None:
        self.label = label
        self.versions = versions
        self.otherwise = otherwise


class ConfigText(NamedTuple):
    """`value`: as `parse_config_json` gives it. `forms`: those used beyond plain JSON, in order of appearance."""

    value: Any
    forms: tuple[Form, ...] = ()


class ObjectName(NamedTuple):
    """An object in place of a member's name, as clients write the queues of their offsets: its own members."""

    members: tuple[tuple[Any, Any], ...]


class Member(NamedTuple):
    """A member of the object that the root's member `table` is, and its place: bytes `begin` to `end` of the file."""

    table: str
    name: Any
    value: Any
    begin: int
    end: int


class TablesText(NamedTuple):
    """`root`: the value, or its beginning. `members`: the whole members of the tables in it, in order. `damage`: why no
    version takes the text, None where one does; `read_to`: the byte where reading ended."""

    root: Any
    members: list[Member]
    forms: tuple[Form, ...]
    damage: str | None
    read_to: int


def decode_config(data: bytes) -> tuple[str, tuple[Form, ...]]:
    """Text of a config file as brokers decode it: wrong UTF-8 becomes U+FFFD, a byte order mark is passed over."""
    forms: list[Form] = []
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
        forms.append(Form.ENCODING)
    if text.startswith("\ufeff"):
        forms.append(Form.MARK)
        text = text[1:]
    return text, tuple(forms)


def read_config_text(data: bytes) -> ConfigText:
    """What `data` holds if any version's parser takes it. CorruptError if none does."""
    text, forms = decode_config(data)
    if len(text) > MAXIMUM_SIZE:
        raise CorruptError(f"config JSON of {len(text)} characters is larger than what is read here")
    strict = CorruptError("config JSON does not parse")
    try:
        value = parse_config_json(text)
        if not _is_odd(text, value):
            return ConfigText(value, forms)
    except CorruptError as error:
        strict = error
    reader = _Reader(text)
    value = reader.whole(strict)
    found = tuple(dict.fromkeys((*forms, *reader.forms)))
    if not versions_taking(found):
        raise strict
    return ConfigText(value, found)


def _is_odd(text: str, value: Any) -> bool:
    """Whether plain JSON holds a table twice, or tables that no version has."""
    if not isinstance(value, dict):
        return False
    return any(name not in _MEMBERS for name in value) or any(text.count(f'"{name}"') > 1 for name in _MAPS)


def read_torn_text(data: bytes) -> Any:
    """The whole members at the beginning of a torn config file; None where not even its first brace is there."""
    reader = _Reader(decode_config(data)[0][:MAXIMUM_SIZE])
    with contextlib.suppress(CorruptError):
        reader.whole(CorruptError("torn"))
    return reader.root


def read_tables_text(data: bytes) -> TablesText:
    """What a file of tables holds whose members may have objects for names; of a torn one what is before the tear.

    Texts that are not UTF-8 have surrogates in them, one for each such byte.
    """
    begin = len(_MARK) if data.startswith(_MARK) else 0
    text = data[begin : begin + MAXIMUM_SIZE].decode("utf-8", "surrogateescape")
    damage = None
    reader = _Reader(text, takes_object_names=True)
    try:
        reader.whole(CorruptError("config JSON does not parse"))
    except CorruptError as error:
        damage = error.message
    found = tuple(dict.fromkeys((*decode_config(data)[1], *reader.forms)))
    if damage is None and not versions_taking(found):
        damage = f"config JSON does not parse: {', '.join(form.label for form in found)}"
    places = _byte_places(text, [place for one in reader.members for place in (one.begin, one.end)] + [reader.at])
    members = [one._replace(begin=begin + places[one.begin], end=begin + places[one.end]) for one in reader.members]
    return TablesText(reader.root, members, found, damage, begin + places[reader.at])


def _byte_places(text: str, characters: list[int]) -> dict[int, int]:
    """The byte at which each of the `characters`, which ascend, begins."""
    found: dict[int, int] = {}
    before = at = 0
    for character in characters:
        at += len(text[before:character].encode("utf-8", "surrogateescape"))
        found[character] = at
        before = character
    return found


def versions_taking(forms: tuple[Form, ...]) -> frozenset[str]:
    """The versions whose parser takes all of `forms`."""
    taking = _ALL
    for form in forms:
        taking &= form.versions | form.otherwise
    return taking


_MARK = b"\xef\xbb\xbf"
_SPACE = re.compile(r"[ \t\r\n]*+")
_MORE_SPACE = re.compile(r"[\f\b]++")
_ODD_SPACE = re.compile("[\0\u00a0]++")
# No possessive quantifier is put on a group: Python 3.11.2, which Debian has, then matches other texts (gh-106052).
_COMMENT = re.compile(r"//[^\n]*+(?:\n|\Z)|/\*[^*]*+(?:\*(?!/)[^*]*+)*\*/")
_NAME = re.compile(r"[A-Za-z_$\u0100-\U0010ffff][A-Za-z0-9_$\u0100-\U0010ffff]*+")
_MEMBER = re.compile(r'"[^"\\]*+"\s*+:')
_INTEGER_NAME = re.compile(r"[+-]?[0-9]++(?:\.0++)?")
_PLAIN_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
_NUMBER = re.compile(r"[+-]?[0-9]++(?:\.[0-9]*+)?(?:[eE][+-]?[0-9]++)?[LBSFD]?+")
_WORD = re.compile(r"[A-Za-z_]++")
_SET = re.compile(r"(?:Tree)?Set(?=\s*+\[)")
_STOPS = {quote: re.compile(rf"[^{quote}\\\x00-\x1f]*+") for quote in "\"'"}
_ESCAPES = dict(zip("bfFnrtv\"'\\/", "\b\f\f\n\r\t\v\"'\\/", strict=True))
_HEX = re.compile(r"[0-9A-Fa-f]*+")
_KNOWN_WORDS = {"true": True, "false": False, "null": None}
_EMPTY_WORDS = frozenset(("undefined", "NaN", "NULL"))
_LONGEST_NUMBER = 400
# Members that are maps to a broker, not objects of a class: fastjson2 takes more behind them.
_MAPS_OF_MAPS = frozenset(("offsetTable", "lmqOffsetTable", "pullOffsetTable", "forbiddenTable"))
_MAPS_OF_OBJECTS = frozenset(("topicConfigTable", "subscriptionGroupTable", "filterDataByTopic"))
_MAPS = _MAPS_OF_MAPS | _MAPS_OF_OBJECTS
_MEMBERS = _MAPS.union("dataVersion groupTopicMap table topicQueueMappingInfoMap messageRequestModeMap".split())
_OF_VERSION = frozenset(("counter", "stateVersion", "timestamp"))
_STRAY_ASCII = frozenset(".:)[{-")
_STRAY = _STRAY_ASCII | frozenset("\uff0c\u200b")
_MAPS_IN_OBJECTS = frozenset(("attributes", "subscriptionDataSet", "groupFilterData"))
_FROM_A_LIST = frozenset(("topicFilterType", "type"))
"""Members whose text is one of a list of words (TopicFilterType, GroupRetryPolicyType)."""

Take = Callable[[Any], None]


class _Reader:
    """Reads one text from left to right. `root` and `members` hold what was read so far, also after an error."""

    def __init__(self, text: str, *, takes_object_names: bool = False) -> None:
        self.text = text
        self.takes_object_names = takes_object_names
        self.members: list[Member] = []
        self.table = ""
        self.at = 0
        self.last = ""  # of the last member's value
        self.forms: list[Form] = []
        self.root: Any = None
        # in a text with characters beyond them fastjson2 takes no white space that JSON does not have
        self.is_latin_1 = all(character <= "\xff" for character in text) if "\xa0" in text else True

    def whole(self, strict: CorruptError) -> Any:
        """The value of the whole text; CorruptError with the reason of `strict` and the place where reading ended."""
        if self.text[:1] == "\0":
            self.forms.append(Form.SPACE)
            self.at = len(self.text) - len(self.text.lstrip("\0"))
        try:
            self._skip(Form.COMMENT, is_odd=False)
            self._value(self._set_root, 0)
            self._end()
        except (ValueError, IndexError, RecursionError) as error:
            raise CorruptError(strict.message) from error
        return self.root

    def _set_root(self, value: Any) -> None:
        self.root = value

    def _end(self) -> None:
        self._skip(Form.COMMENT)
        rest = self.text[self.at :]
        if rest.strip("\0\x1a \t\r\n\f\b"):
            if rest != "," and not (self.is_latin_1 and not rest.strip("\xa0 \t\r\n")):
                raise ValueError("text after the value")
            self.forms.append(Form.COMMA_AFTER if rest == "," else Form.ODD_SPACE)
        elif rest:
            self.forms.append(Form.SPACE)

    def _skip(self, comments: Form | None, *, is_odd: bool = True) -> None:
        """Skip white space and comments, which count as `comments`; ValueError for a comment if that is None."""
        text = self.text
        while True:
            before = self.at
            self.at = _SPACE.match(text, self.at).end()  # type: ignore[union-attr]  # matches the empty text
            odd = Form.ODD_SPACE if is_odd and self.is_latin_1 else None
            for pattern, form in ((_MORE_SPACE, Form.SPACE), (_ODD_SPACE, odd)):
                found = pattern.match(text, self.at) if form is not None else None
                if found is not None and found.end() < len(text):
                    self.at = found.end()
                    self.forms.append(form)  # type: ignore[arg-type]  # form is not None where found is not
            if text.startswith(("//", "/*"), self.at):
                found = _COMMENT.match(text, self.at)
                if found is None or comments is None:
                    raise ValueError("a comment")
                self.at = found.end()
                self.forms.append(comments)
            if self.at == before:
                return

    def _value(self, put: Take, depth: int) -> None:
        """Read one value and hand it to `put`: containers before they are filled, so that torn text keeps them."""
        if depth > MAXIMUM_DEPTH:
            raise ValueError("nested too deeply")
        character = self.text[self.at]
        is_bare = depth == 0 or (self.table in _MAPS_OF_OBJECTS if depth == 2 else self.table == "dataVersion")
        if character == "{":
            self.at += 1
            self._object(put, depth)
        elif character == '"' and is_bare and _MEMBER.match(self.text, self.at):
            self.forms.append(Form.MISSING_BRACE)
            self._object(put, depth)
        elif character in "[TS":
            self._list(put, depth)
        elif character in "\"'":
            put(self._string())
        elif character in "+-0123456789":
            put(self._number())
        else:
            put(self._word())

    def _object(self, put: Take, depth: int) -> None:
        members: dict[Any, Any] = {}
        put(members)
        is_first, after_comma, is_after_map, is_after_word, is_known = True, False, False, False, True
        while True:
            mark = len(self.forms)
            self._skip(Form.COMMENT)
            if self.text[self.at] == "}":
                self.at += 1
                if after_comma:
                    self.forms.append(Form.LAST_COMMA if is_known else Form.EXTRA_COMMA)
                    if Form.COMMENT in self.forms[mark:] and self.last != "}":
                        self.forms.append(Form.COMMENT_AT_VALUE)
                return
            extra = self._extra_commas(is_after_map)
            begin = self.at
            name = self._name(depth, is_after_extra_comma=extra)
            if depth == 0:
                self.table = str(name)
                if name in members and name in _MAPS:
                    self.forms.append(Form.TABLE_TWICE)
            if depth > 0 and isinstance(name, int | ObjectName) and self.table not in _MEMBERS:
                self.forms.append(Form.BARE_IN_UNKNOWN)
            is_number = self._is_number(name, depth)
            if is_number and extra and isinstance(name, str):
                raise ValueError("a number after a comma too many")
            before = self.forms[mark:]
            if after_comma and (is_number or is_after_word) and Form.ODD_SPACE in before:
                raise ValueError("white space before a number")
            if after_comma and is_number and Form.COMMENT in before:
                self.forms.append(Form.COMMENT_AT_VALUE)
            if not (is_first or after_comma or extra):
                if not is_known:
                    raise ValueError("no comma behind what fastjson2 passes over")
                self.forms.append(Form.MISSING_COMMA_IN_NUMBERS if isinstance(name, int) else Form.MISSING_COMMA)
            self._colon(is_number, is_key=is_number or (depth == 1 and self.table in _MAPS))
            if name in _FROM_A_LIST and self.text[self.at] == "'":
                self.forms.append(Form.SINGLE_QUOTED_WORD)
            self._value(lambda value, name=name: members.__setitem__(name, value), depth + 1)  # type: ignore[misc]
            if depth == 1:
                self.members.append(Member(self.table, name, members[name], begin, self.at))
            is_after_map, is_after_word = self._after_value(name, depth), name in _FROM_A_LIST
            after_comma = self._comma(depth, is_of_number=is_number)
            is_known = name in _MEMBERS if depth == 0 else self.table != "dataVersion" or name in _OF_VERSION
            is_first = False

    def _after_value(self, name: str | int | ObjectName, depth: int) -> bool:
        """Skip what follows a member's value. Return whether that was a map or a list."""
        self.last = last = self.text[self.at - 1]
        is_map = last in "}]" and (
            name in _MAPS
            if depth == 0
            else self.table in _MAPS_OF_MAPS
            if depth == 1
            else name in _MAPS_IN_OBJECTS and self.table in _MAPS_OF_OBJECTS
        )
        mark = len(self.forms)
        self._skip(Form.COMMENT, is_odd=not last.isalpha())
        is_free = is_map or (last == "}" and self.text[self.at] == "}")
        if Form.COMMENT in self.forms[mark:] and not is_free:
            self.forms.append(Form.COMMENT_AT_VALUE)
        return is_map

    def _extra_commas(self, is_after_map: bool) -> bool:
        """Skip commas before a name. Return whether there were some that are too many."""
        if self.text[self.at] != ",":
            return False
        begin = self.at
        while self.text[self.at] == ",":
            self.at += 1
            self._skip(Form.COMMENT)
        is_one = is_after_map and not self.text[begin + 1 : self.at].strip()
        self.forms.append(Form.COMMA_AFTER_MAP if is_one else Form.EXTRA_COMMA)
        return True

    def _object_name(self, depth: int) -> ObjectName:
        read: list[Any] = []
        self._value(read.append, depth + 2)  # below the members of a table
        if any(isinstance(value, dict | list) for value in read[0].values()):
            raise ValueError("an object inside a name")
        return ObjectName(tuple(read[0].items()))

    def _name(self, depth: int, is_after_extra_comma: bool) -> str | int | ObjectName:
        text = self.text
        name: str | int | ObjectName
        if text[self.at] in "\"'":
            name = self._string()
        elif text[self.at] == "{" and self.takes_object_names:
            name = self._object_name(depth)
        elif (found := _INTEGER_NAME.match(text, self.at)) is not None:
            if is_after_extra_comma or len(found.group()) > 20:
                raise ValueError("a number after a comma too many")
            if found.group() != str(int(float(found.group()))):
                self.forms.append(Form.NUMBER)
            self.at = found.end()
            name = int(found.group().partition(".")[0])
        elif (found := _NAME.match(text, self.at)) is not None:
            self.at = found.end()
            self.forms.append(Form.BARE_NAME)
            name = found.group()
        else:
            raise ValueError("no name")
        return name

    def _is_number(self, name: str | int | ObjectName, depth: int) -> bool:
        """Whether `name` is the number of a queue or a level, in quotes too."""
        is_quoted = isinstance(name, str) and depth > 0 and self.table == "offsetTable" and name.isdecimal()
        return isinstance(name, int) or is_quoted

    def _colon(self, is_number: bool, *, is_key: bool) -> None:
        """`is_key`: after a key of a map, not after the name of a field."""
        self._skip(Form.COMMENT_AT_VALUE if is_key else None)
        if self.text[self.at] != ":":
            if not is_number:
                raise ValueError("no colon")
            self.forms.append(Form.MISSING_COLON)
        else:
            self.at += 1
        self._skip(Form.COMMENT if is_number else Form.COMMENT_AT_VALUE, is_odd=is_key)

    def _comma(self, depth: int, is_of_number: bool) -> bool:
        """Return whether a comma, or its substitute, follows a member."""
        is_free = self.table in _MAPS if depth == 1 else depth == 0 and self.table == "dataVersion"
        if is_free and self.last == "}" and self.text[self.at] in (_STRAY if depth else _STRAY_ASCII):
            self.at += 1
            self.forms.append(Form.STRAY)
            return self.text[self.at] != "," or self._comma(depth, is_of_number)
        if self.text[self.at] == ",":
            self.at += 1
            return True
        is_refused = is_of_number or self.last.isalpha() or (depth == 1 and self.table == "dataVersion")
        if self.text[self.at] == ";" and not is_refused:
            self.at += 1
            self.forms.append(Form.SEMICOLON)
            return True
        return False

    def _list(self, put: Take, depth: int) -> None:
        found = _SET.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
            self.forms.append(Form.SET)
            self._skip(None)
        if self.text[self.at] != "[":
            put(self._word())
            return
        self.at += 1
        items: list[Any] = []
        put(items)
        needs_comma = False
        while True:
            self._skip(Form.COMMENT_AT_VALUE)
            character = self.text[self.at]
            if character == "]":
                if items and not needs_comma:
                    self.forms.append(Form.EXTRA_COMMA)
                self.at += 1
                return
            if character == ",":
                if not needs_comma:
                    self.forms.append(Form.EXTRA_COMMA)
                needs_comma = False
                self.at += 1
                continue
            if needs_comma:
                raise ValueError("no comma in a list")
            self._value(items.append, depth + 1)
            needs_comma = True

    def _string(self) -> str:
        text, quote = self.text, self.text[self.at]
        if quote == "'":
            self.forms.append(Form.SINGLE_QUOTES)
        self.at += 1
        parts: list[str] = []
        stop = _STOPS[quote]
        while True:
            found = stop.match(text, self.at)
            assert found is not None  # it matches the empty text
            parts.append(found.group())
            self.at = found.end()
            character = text[self.at]
            self.at += 1
            if character == quote:
                return "".join(parts)
            if character == "\\":
                parts.append(self._escape())
            else:
                self.forms.append(Form.CONTROL)
                parts.append(character)

    def _escape(self) -> str:
        text, character = self.text, self.text[self.at]
        self.at += 1
        if character in "ux":
            length = 4 if character == "u" else 2
            digits = text[self.at : self.at + length]
            if len(digits) < length:
                raise IndexError("torn escape")
            self.at += length
            if character == "x":
                self.forms.append(Form.ESCAPE)
            if not _HEX.fullmatch(digits):
                if '"' in digits or character == "x":
                    raise ValueError("an escape without digits")
                self.forms.append(Form.WRONG_ESCAPE)
                return "\ufffd"
            return chr(int(digits, 16))
        if character in "01234567":
            self.forms.append(Form.ESCAPE)
            return chr(int(character))
        if character not in _ESCAPES:
            raise ValueError("an unknown escape")
        if character in "vF'":
            self.forms.append(Form.ESCAPE)
        return _ESCAPES[character]

    def _number(self) -> int | float:
        found = _NUMBER.match(self.text, self.at)
        if found is None or len(found.group()) > _LONGEST_NUMBER:
            raise ValueError("no number")
        text = found.group()
        if found.end() == len(self.text):
            raise IndexError("a number that may go on")
        self.at = found.end()
        if not _PLAIN_NUMBER.fullmatch(text):
            self.forms.append(Form.NUMBER)
        digits = text.rstrip("LBSFD")
        return int(digits) if re.fullmatch(r"[+-]?[0-9]+", digits) and text[-1] not in "FD" else float(digits)

    def _word(self) -> Any:
        found = _WORD.match(self.text, self.at)
        word = found.group() if found is not None else ""
        if word not in _KNOWN_WORDS and word not in _EMPTY_WORDS:
            raise ValueError("no value")
        self.at += len(word)
        if word in _EMPTY_WORDS:
            self.forms.append(Form.WORD)
        return _KNOWN_WORDS.get(word)
