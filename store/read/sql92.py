"""SQL92 filters of RocketMQ: parse an expression and evaluate it on the properties of a message.

Grammar and three-valued logic are those of RocketMQ's SelectorParser and its classes of expressions, their surprises
included: NOT binds to the operand after it (`NOT a = 1` compares the negation of `a`), what follows a whole expression
is ignored, and an expression that cannot compare its values matches no message.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import LarkError, UnexpectedCharacters, UnexpectedToken, VisitError

from rmqctl.formats.errors import UsageError
from rmqctl.formats.properties import parse_properties

__all__ = ["SqlFilter"]

_LONGEST = 32_767
"""Characters of an expression: parsing takes about a second for a million."""
_DEEPEST = 100
"""Expressions inside each other; each level is a call when a message is judged."""

# Token rules of RocketMQ: keywords in any case, `!=` and `"` unknown. Line comments are gone before.
_GRAMMAR = r"""
?start: or_expression
?or_expression: and_expression (_OR and_expression)*
?and_expression: equality (_AND equality)*
?equality: comparison
    | equality "=" comparison       -> equal
    | equality "<>" comparison      -> not_equal
    | equality _IS _NULL            -> is_null
    | equality _IS _NOT _NULL       -> is_not_null
?comparison: unary
    | comparison ORDER unary                        -> ordered
    | comparison TEXT_TEST STRING                   -> text_test
    | comparison _NOT TEXT_TEST STRING              -> not_text_test
    | comparison _BETWEEN unary _AND unary          -> between
    | comparison _NOT _BETWEEN unary _AND unary     -> not_between
    | comparison _IN "(" STRING ("," STRING)* ")"       -> is_in
    | comparison _NOT _IN "(" STRING ("," STRING)* ")"  -> is_not_in
?unary: primary
    | "+" unary
    | "-" unary     -> negative
    | _NOT unary    -> negation
?primary: "(" or_expression ")"
    | STRING    -> string
    | DECIMAL   -> decimal
    | FLOAT     -> float
    | _TRUE     -> true
    | _FALSE    -> false
    | _NULL     -> null
    | WORD      -> property

%declare _NOT _AND _OR _BETWEEN _IN _TRUE _FALSE _NULL _IS TEXT_TEST
WORD: /[A-Za-z_$][A-Za-z0-9_$]*/
STRING: /'(?:''|[^'])*'/
FLOAT.3: /[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
DECIMAL.2: /0|[1-9][0-9]*[lL]?/
ORDER: /[<>]=|<(?!>)|>/
BLANK: /[ \t\n\r\f]+/
BLOCK_COMMENT.4: /\/\*[^*]*\*(?:\*|[^*\/][^*]*\*)*\//
%ignore BLANK
%ignore BLOCK_COMMENT
"""
_KEYWORDS = {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"}
_TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}

_MOST_DIGITS = 40
_LONGEST_SHOWN = 100
_OPENING = re.compile(r"'|/\*|--")
_CLOSED = re.compile(r"'(?:''|[^'])*'|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/")
_LINE_END = re.compile(r"\r\n?|\n")
_INT32 = range(-(1 << 31), 1 << 31)
_INT64 = range(-(1 << 63), 1 << 63)
_WHOLE = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_HEX_DOUBLE = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?")
_TRIMMED = "".join(map(chr, range(0x21)))


class _Long(int):
    """A number that Java holds in a Long; a plain int is an Integer, which compares with texts in its own range."""


Given = Mapping[str, str]
Evaluated = str | bool | int | float | None


class _NotComparableError(Exception):
    """Values that RocketMQ throws at when it compares them: the message does not match."""


class _Node(NamedTuple):
    """A part of an expression, and what it is where the grammar asks: TRUE, FALSE and NULL are constants and boolean.
    `depth`: of the expressions inside it; `value`: of a constant."""

    evaluate: Callable[[Given], Any]
    depth: int
    is_constant: bool = False
    is_property: bool = False
    is_boolean: bool = False
    value: Evaluated = None


class SqlFilter:
    """An SQL92 expression. As a filter of pulls it has the methods of TagFilter."""

    is_all = False
    """An expression may leave any message out."""
    ignored: str
    """What follows the expression in its text, which RocketMQ does not look at."""

    def __init__(self, expression: str) -> None:
        """Raises: UsageError for an expression that RocketMQ does not take, or that is too long or too deep."""
        self.expression = expression
        self._evaluate, self.ignored = _understood(expression)

    def __reduce__(self) -> tuple[type[SqlFilter], tuple[str]]:
        """Pickle the text: what it means is worked out where it arrives."""
        return SqlFilter, (self.expression,)

    def may_match(self, tags_code: int | None) -> bool:
        """Return True: the unit of a queue does not say."""
        return True

    def matches_properties(self, properties: Given) -> bool:
        """Return whether the expression is true of a message (ExpressionMessageFilter#isMatchedByCommitLog)."""
        try:
            return self._evaluate(properties) is True
        except _NotComparableError:
            return False

    def matches_stored(self, properties: bytes) -> bool:
        """The same for properties as stored. Raises: UnicodeDecodeError where they are not UTF-8."""
        return self.matches_properties(parse_properties(properties))


@functools.lru_cache(maxsize=128)
def _understood(expression: str) -> tuple[Callable[[Given], Any], str]:
    if len(expression) > _LONGEST:
        raise UsageError(f"a filter of {len(expression)} characters is too long", hint=f"use at most {_LONGEST}")
    try:
        node, ignored = _parsed(_without_line_comments(expression))
        return _as_boolean(node).evaluate, ignored
    except VisitError as error:
        if isinstance(error.orig_exc, UsageError):
            raise error.orig_exc from None
        raise
    except (UnexpectedCharacters, UnexpectedToken) as error:
        at = error.pos_in_stream or 0  # type: ignore[redundant-expr]  # what lark declares differs by class
        is_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
        what = "it ends too early" if is_end else f"unexpected {expression[at : at + 20]!r} at character {at + 1}"
        raise _invalid(what, expression) from None
    except LarkError as error:
        raise _invalid(str(error), expression) from None


def _without_line_comments(expression: str) -> str:
    """Return the text with blanks for comments, which go from `--` to the end of a line. A text that ends before is no
    comment.

    A token rule would look for it from every `--` of a text, and take half a minute for one of nothing but dashes.
    """
    last_end = max(expression.rfind("\n"), expression.rfind("\r"))
    parts: list[str] = []
    kept, at = 0, 0
    while (found := _OPENING.search(expression, at, last_end + 1)) is not None:
        is_comment = found[0] == "--"
        end = _LINE_END.search(expression, found.end()) if is_comment else _CLOSED.match(expression, found.start())
        if end is None:
            break
        at = end.end()
        if is_comment:
            parts += (expression[kept : found.start()], " " * (at - found.start()))
            kept = at
    return "".join(parts) + expression[kept:]


def _shown(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _invalid(why: str, expression: str = "") -> UsageError:
    of = f"{_shown(expression)!r} " if expression else "the filter "
    return UsageError(
        f"{of}is not an SQL92 filter: {why}", hint="write it as \"a > 5 AND b IN ('x', 'y') AND c IS NOT NULL\""
    )


def _parsed(expression: str) -> tuple[_Node, str]:
    """Return the longest expression that the text begins with, and the rest: RocketMQ's grammar does not ask for the
    end."""
    parser = _parser().parse_interactive(expression)
    last, end = None, len(expression)
    for token in parser.lexer_thread.lex(parser.parser_state):  # type: ignore[no-untyped-call]
        try:
            parser.feed_token(token)
        except UnexpectedToken:
            if "$END" not in parser.choices():  # type: ignore[no-untyped-call]
                raise
            end = token.start_pos or 0
            break
        last = token
    node: _Node = parser.feed_eof(last)  # type: ignore[no-untyped-call]
    return node, expression[end:]


@functools.cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", lexer="basic", transformer=_Builder(), lexer_callbacks={"WORD": _keyword})


def _keyword(word: Token) -> Token:
    upper = word.upper() if word.isascii() else ""
    if upper in _TEXT_TESTS:
        return Token.new_borrow_pos("TEXT_TEST", upper, word)
    return Token.new_borrow_pos("_" + upper, upper, word) if upper in _KEYWORDS else word


# Building: the checks of RocketMQ's factories (ComparisonExpression, UnaryExpression, LogicExpression).


def _depth(*nodes: _Node) -> int:
    depth = 1 + max(node.depth for node in nodes)
    if depth > _DEEPEST:
        raise UsageError(f"a filter of more than {_DEEPEST} expressions inside each other", hint="write it flatter")
    return depth


def _boolean(evaluate: Callable[[Given], Any], *nodes: _Node) -> _Node:
    return _Node(evaluate, _depth(*nodes), is_boolean=True)


def _constant(value: Evaluated, *, is_boolean: bool = False) -> _Node:
    return _Node(lambda _: value, 1, is_constant=True, is_boolean=is_boolean, value=value)


def _as_boolean(node: _Node) -> _Node:
    """Return it as a condition. A property is one that is never true: its value is a text."""
    if node.is_boolean:
        return node
    if not node.is_property:
        raise _invalid("a condition is needed, not a value")
    evaluate = node.evaluate
    return _boolean(lambda properties: None if evaluate(properties) is None else False, node)


def _text(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _is_number(value: Evaluated) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _not(node: _Node) -> _Node:
    evaluate = node.evaluate

    def negated(properties: Given) -> bool | None:
        value = evaluate(properties)
        return None if value is None else not value

    return _boolean(negated, node)


def _all_or_any(nodes: Sequence[_Node], decides: bool) -> _Node:
    """Combine conditions, of which one that is `decides` decides alone."""
    parts = [_as_boolean(node).evaluate for node in nodes]

    def combined(properties: Given) -> bool | None:
        is_unknown = False
        for part in parts:
            value: bool | None = part(properties)
            if value is decides:
                return decides
            is_unknown = is_unknown or value is None
        return None if is_unknown else not decides

    return _boolean(combined, *nodes)


def _equal(left: _Node, right: _Node) -> _Node:
    of_left, of_right = left.evaluate, right.evaluate

    def is_equal(properties: Given) -> bool | None:
        first, second = of_left(properties), of_right(properties)
        if first is None:
            return True if second is None else None
        return second is not None and _compare(first, second) == 0

    return _boolean(is_equal, left, right)


_HOLDS: dict[str, Callable[[int, int], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def _ordered(left: _Node, order: str, right: _Node) -> _Node:
    for node in (left, right):
        if node.is_boolean or (node.is_constant and not _is_number(node.value)):
            raise _invalid(f"{order} compares numbers")
    of_left, of_right, holds = left.evaluate, right.evaluate, _HOLDS[order]

    def is_ordered(properties: Given) -> bool | None:
        first, second = of_left(properties), of_right(properties)
        if first is None or second is None:
            return None
        if isinstance(first, str) and isinstance(second, str):
            first, second = _double_of(first), _double_of(second)
        return holds(_compare(first, second), 0)

    return _boolean(is_ordered, left, right)


def _is_in(node: _Node, texts: Sequence[Token]) -> Callable[[Given], bool | None]:
    if not node.is_property:
        raise _invalid("IN needs a property on its left")
    evaluate, wanted = node.evaluate, frozenset(map(_text, texts))

    def is_one(properties: Given) -> bool | None:
        value = evaluate(properties)
        return None if value is None else value in wanted

    return is_one


def _text_test(node: _Node, test: str, text: Token, holds: bool) -> _Node:
    evaluate, passes, wanted = node.evaluate, _TEXT_TESTS[test], _text(text)

    def tested(properties: Given) -> bool:
        value = evaluate(properties) if wanted else None
        return isinstance(value, str) and passes(value, wanted) is holds

    return _boolean(tested, node)


@v_args(inline=True)
class _Builder(Transformer[Token, _Node]):
    """Builds the nodes of an expression, innermost first."""

    def or_expression(self, *nodes: _Node) -> _Node:
        return _all_or_any(nodes, True)

    def and_expression(self, *nodes: _Node) -> _Node:
        return _all_or_any(nodes, False)

    def equal(self, left: _Node, right: _Node) -> _Node:
        for node in (left, right):
            if node.is_constant and node.value is None:
                raise _invalid("= and <> do not compare with NULL: use IS NULL")
        if left.is_constant and left.is_boolean and right.is_constant and not right.is_boolean:
            raise _invalid("TRUE and FALSE do not compare with numbers and texts")
        return _equal(left, right)

    def not_equal(self, left: _Node, right: _Node) -> _Node:
        return _not(self.equal(left, right))

    def is_null(self, node: _Node) -> _Node:
        return _equal(node, _constant(None))

    def is_not_null(self, node: _Node) -> _Node:
        return _not(self.is_null(node))

    def ordered(self, left: _Node, order: Token, right: _Node) -> _Node:
        return _ordered(left, str(order), right)

    def text_test(self, node: _Node, test: Token, text: Token) -> _Node:
        return _text_test(node, str(test), text, True)

    def not_text_test(self, node: _Node, test: Token, text: Token) -> _Node:
        return _text_test(node, str(test), text, False)

    def between(self, node: _Node, low: _Node, high: _Node) -> _Node:
        lowest, highest = _ordered(node, ">=", low), _ordered(node, "<=", high)
        if low.is_constant and high.is_constant and _compare(high.value, low.value) < 0:
            raise _invalid(f"BETWEEN {low.value} AND {high.value} is empty")
        return _all_or_any((lowest, highest), False)

    def not_between(self, node: _Node, low: _Node, high: _Node) -> _Node:
        return _all_or_any((_ordered(node, "<", low), _ordered(node, ">", high)), True)

    def is_in(self, node: _Node, *texts: Token) -> _Node:
        return _boolean(_is_in(node, texts), node)

    def is_not_in(self, node: _Node, *texts: Token) -> _Node:
        return _not(self.is_in(node, *texts))

    def negative(self, node: _Node) -> _Node:
        evaluate = node.evaluate

        def negated(properties: Given) -> Evaluated:
            value = evaluate(properties)
            return type(value)(-value) if _is_number(value) else None

        return _Node(negated, _depth(node))

    def negation(self, node: _Node) -> _Node:
        return _not(_as_boolean(node))

    def string(self, token: Token) -> _Node:
        return _constant(_text(token))

    def decimal(self, token: Token) -> _Node:
        digits = token.rstrip("lL")
        # Python converts no longer ones
        number = int(digits) if len(digits) <= _MOST_DIGITS else None
        if number is None or number not in _INT64:
            raise _invalid(f"{_shown(token)} has more than 64 bits")
        return _constant(number if number in _INT32 else _Long(number))

    def float(self, token: Token) -> _Node:
        number = float(token)
        if not 0 < number < float("inf"):
            raise _invalid(f"{_shown(token)} is 0 or does not fit into 64 bits: write 0 without a point")
        return _constant(number)

    def true(self) -> _Node:
        return _constant(True, is_boolean=True)

    def false(self) -> _Node:
        return _constant(False, is_boolean=True)

    def null(self) -> _Node:
        return _constant(None, is_boolean=True)

    def property(self, token: Token) -> _Node:
        name = str(token)
        return _Node(lambda properties: properties.get(name), 1, is_property=True)


# Comparing, with the conversions of ComparisonExpression#__compare.


def _difference(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _compare(left: Any, right: Any) -> int:
    """Return a number below, at or above 0. Raises: _NotComparableError."""
    of_left, of_right = type(left), type(right)
    if of_left is of_right:
        return _order_of_doubles(left, right) if of_left is float else _difference(left, right)
    if of_left is bool:
        if of_right is str:
            raise _NotComparableError
        return -1
    if of_left is str:
        if of_right is bool:
            return _difference(left.lower() == "true", right)
        return _compare(_converted(left, of_right), right)
    if of_right is bool:
        return -1
    if of_right is str:
        return _compare(left, _converted(right, of_left))
    if float in (of_left, of_right):
        return _order_of_doubles(float(left), float(right))
    return _difference(left, right)


def _converted(text: str, kind: type) -> int | float:
    """Return a text as a number of Java's class. Raises: _NotComparableError (NumberFormatException)."""
    if kind is float:
        return _double_of(text)
    number = int(text) if len(text) <= _MOST_DIGITS and _WHOLE.fullmatch(text) else None
    if number is None or number not in (_INT64 if kind is _Long else _INT32):
        raise _NotComparableError
    made: int = kind(number)
    return made


def _double_of(text: str) -> float:
    """Return what Double.valueOf makes of a text. Raises: _NotComparableError."""
    trimmed = text.strip(_TRIMMED)
    if _HEX_DOUBLE.fullmatch(trimmed):
        try:
            return float.fromhex(trimmed.rstrip("fFdD"))
        except OverflowError:
            return float("-inf" if trimmed.startswith("-") else "inf")
    if not _DOUBLE.fullmatch(trimmed):
        raise _NotComparableError
    return float(trimmed if trimmed.endswith(("y", "N")) else trimmed.rstrip("fFdD"))


def _order_of_doubles(left: float, right: float) -> int:
    """Compare as Double.compareTo: NaN equals itself and is the largest, -0.0 is below 0.0."""
    return _difference(_rank(left), _rank(right))


def _rank(number: float) -> tuple[bool, float, bool]:
    is_nan = math.isnan(number)
    return is_nan, 0.0 if is_nan else number, is_nan or math.copysign(1.0, number) > 0
