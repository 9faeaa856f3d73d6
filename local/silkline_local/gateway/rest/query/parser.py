"""Parses the query string: `select`, `order`, `limit`, `offset`, and conditions like `id=eq.1`.

Owns the grammar. Features of PostgREST that this stand-in does not have are refused by name;
anything else that cannot be parsed is refused with the column where parsing stopped.
"""

import re
from collections.abc import Iterable
from typing import Literal, NoReturn, cast

from silkline_local.gateway.http import Refusal
from silkline_local.gateway.rest.errors import failure, not_supported, unparsable
from silkline_local.gateway.rest.query.model import (
    OPERATORS,
    TRUTHS,
    Arrow,
    Condition,
    ConditionGroup,
    Field,
    OrderTerm,
    Query,
    SelectItem,
)
from silkline_local.gateway.rest.query.ranges import requested_range

QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
NAME = re.compile(r'[\w $]+(?:-(?!>)[\w $]+)*')
ARROW = re.compile(r'->>?')
INDEX = re.compile(r'-?[0-9]{1,9}(?=->|::|[.,)]|$)')
CAST = re.compile(
    r'(?:bit|character) varying|double precision|(?:time|timestamp) with(?:out)? time zone'
    r'|[a-z_][a-z0-9_]*',
    re.IGNORECASE,
)
ARRAY = re.compile(r'\{[^{}]*\}')
UP_TO_SEPARATOR = re.compile(r'[^,)]*')
OPERATOR = re.compile(r'[a-z]+')
FULL_TEXT = frozenset({'fts', 'plfts', 'phfts', 'wfts'})
DEEPEST = 50


def parse_query(
    pairs: Iterable[tuple[str, str]], *, range_header: str | None, takes_arguments: bool
) -> Query:
    """Parse the parameters; those of a GET call that are not conditions are its arguments."""
    select: tuple[SelectItem, ...] = ()
    order: tuple[OrderTerm, ...] = ()
    conditions: list[Condition | ConditionGroup] = []
    arguments: list[tuple[str, str]] = []
    single: dict[str, str] = {}
    for name, value in pairs:
        *path, last = name.split('.')
        if name in ('select', 'limit', 'offset'):
            single.setdefault(name, value)
        elif name == 'order':
            order = QueryReader('order', value).order()
        elif last in ('and', 'or') and path in ([], ['not']):
            conditions.append(QueryReader('logic tree', value).tree(last, is_negated=bool(path)))
        elif name == 'columns':
            raise not_supported('the parameter `columns`')
        elif name == 'on_conflict':
            continue
        elif takes_arguments and not looks_like_condition(name, value):
            refuse_nul(name + value)
            arguments.append((name, value))
        else:
            field = QueryReader('tree path', name).whole_field()
            conditions.append(QueryReader('filter', value).condition(field))
    if 'select' in single:
        select = QueryReader('select parameter', single['select']).select()
    return Query(
        select=select,
        conditions=tuple(conditions),
        order=order,
        rows=requested_range(single.get('limit'), single.get('offset'), header=range_header),
        arguments=tuple(arguments),
    )


def looks_like_condition(name: str, value: str) -> bool:
    first, dot, _ = value.partition('.')
    operator = first.partition('(')[0]
    return '.' in name or (
        bool(dot)
        and (operator in OPERATORS or operator in FULL_TEXT or first in ('not', 'is', 'in'))
    )


class QueryReader:
    """Reads one text from left to right."""

    def __init__(self, what: str, text: str) -> None:
        self._what = what
        self._text = text
        self._at = 0

    def select(self) -> tuple[SelectItem, ...]:
        items = [self._selected()]
        while self._skip(','):
            items.append(self._selected())
        self._end('"," or end of input')
        return tuple(items)

    def order(self) -> tuple[OrderTerm, ...]:
        items = [self._ordered()]
        while self._skip(','):
            items.append(self._ordered())
        self._end('"," or end of input')
        return tuple(items)

    def tree(self, operator: Literal['and', 'or'], *, is_negated: bool) -> ConditionGroup:
        group = self._group(operator, is_negated=is_negated, depth=1)
        self._end('end of input')
        return group

    def whole_field(self) -> Field:
        """A name and a JSON path, and nothing after them."""
        field = self._field()
        if self._text[self._at : self._at + 1] == '.':
            raise failure(
                400,
                'PGRST108',
                f"'{field.column}' is not an embedded resource in this request",
                hint=f"Verify that '{field.column}' is included in the 'select' query parameter.",
            )
        self._end('"->", "->>" or end of input')
        return field

    def condition(self, field: Field) -> Condition:
        """An operator and its value, up to the end of the text."""
        condition = self._condition(field, is_nested=False)
        self._end('end of input')
        return condition

    def _selected(self) -> SelectItem:
        self._spaces()
        if self._skip('*'):
            self._spaces()
            return SelectItem(None)
        if self._text.startswith('...', self._at):
            raise not_supported('a spread relation in `select`')
        alias: str | None = None
        start = self._at
        name = self._name()
        if self._text[self._at : self._at + 1] == ':' and self._text[self._at + 1 :][:1] != ':':
            self._at += 1
            alias = name
        else:
            self._at = start
        field = self._field()
        self._refuse_embedding()
        cast_to: str | None = None
        if self._skip('::'):
            match = self._match(CAST)
            if match is None:
                self._fail('the name of a type')
            cast_to = match[0]
        self._refuse_embedding()
        self._spaces()
        return SelectItem(field, alias, cast_to)

    def _refuse_embedding(self) -> None:
        follows = self._text[self._at : self._at + 1]
        is_aggregate = follows == '.' or self._text[self._at : self._at + 2] == '()'
        if is_aggregate:
            raise not_supported('an aggregate function in `select`')
        if follows in ('(', '!'):
            raise not_supported(
                'embedding another table in `select`', hint='Read the tables one by one.'
            )

    def _ordered(self) -> OrderTerm:
        self._spaces()
        field = self._field()
        if self._text[self._at : self._at + 1] == '(':
            raise not_supported('ordering by an embedded table')
        direction: Literal['asc', 'desc'] | None = None
        nulls: Literal['nullsfirst', 'nullslast'] | None = None
        if self._skip('.asc'):
            direction = 'asc'
        elif self._skip('.desc'):
            direction = 'desc'
        if self._skip('.nullsfirst'):
            nulls = 'nullsfirst'
        elif self._skip('.nullslast'):
            nulls = 'nullslast'
        self._spaces()
        if self._at < len(self._text) and self._text[self._at] != ',':
            self._fail('".asc", ".desc", ".nullsfirst", ".nullslast", "," or end of input')
        return OrderTerm(field, direction, nulls)

    def _group(
        self, operator: Literal['and', 'or'], *, is_negated: bool, depth: int
    ) -> ConditionGroup:
        if depth > DEEPEST:
            raise not_supported(f'a condition nested deeper than {DEEPEST}')
        self._spaces()
        if not self._skip('('):
            self._fail('"("')
        members = [self._member(depth)]
        while self._skip(','):
            members.append(self._member(depth))
        if not self._skip(')'):
            self._fail('"," or ")"')
        self._spaces()
        return ConditionGroup(operator, tuple(members), is_negated)

    def _member(self, depth: int) -> Condition | ConditionGroup:
        self._spaces()
        match = self._match(re.compile(r'(not\.)?(and|or)(?=\s*\()'))
        if match is not None:
            return self._group(
                cast("Literal['and', 'or']", match[2]),
                is_negated=match[1] is not None,
                depth=depth + 1,
            )
        field = self._field()
        if not self._skip('.'):
            self._fail('delimiter (.)')
        condition = self._condition(field, is_nested=True)
        self._spaces()
        return condition

    def _condition(self, field: Field, *, is_nested: bool) -> Condition:
        is_negated = self._skip('not.')
        start = self._at
        match = self._match(OPERATOR)
        operator = '' if match is None else match[0]
        if operator in FULL_TEXT:
            raise not_supported(f'the full text operator `{operator}`')
        if operator in OPERATORS and self._text[self._at : self._at + 1] == '(':
            raise not_supported(f'`{operator}(any)` or `{operator}(all)`')
        if not (operator in OPERATORS or operator in ('is', 'in')) or not self._skip('.'):
            self._at = start
            self._fail('"not" or operator (eq, gt, ...)')
        if operator == 'is':
            value: str | tuple[str, ...] = self._truth()
        elif operator == 'in':
            value = self._list()
        elif is_nested:
            value = self._nested_value()
        else:
            value = self._text[self._at :]
            self._at = len(self._text)
        for text in (value,) if isinstance(value, str) else value:
            refuse_nul(text)
        return Condition(field, operator, value, is_negated)

    def _truth(self) -> str:
        match = self._match(re.compile(r'[a-z_]+', re.IGNORECASE))
        word = '' if match is None else match[0].lower()
        if word not in TRUTHS:
            self._at -= len(word)
            self._fail('isVal: (null, not_null, true, false, unknown)')
        return word

    def _list(self) -> tuple[str, ...]:
        self._spaces()
        if not self._skip('('):
            self._fail('"("')
        items = [self._item()]
        while self._skip(','):
            items.append(self._item())
        if not self._skip(')'):
            self._fail('"," or ")"')
        self._spaces()
        return () if items == [''] else tuple(items)

    def _item(self) -> str:
        quoted = QUOTED.match(self._text, self._at)
        if quoted is not None and self._text[quoted.end() : quoted.end() + 1] in (',', ')', ''):
            self._at = quoted.end()
            return unescape(quoted[1])
        match = self._match(UP_TO_SEPARATOR)
        return '' if match is None else match[0]

    def _nested_value(self) -> str:
        array = self._match(ARRAY)
        return self._item() if array is None else array[0]

    def _field(self) -> Field:
        column = self._name()
        path: list[Arrow] = []
        while (arrow := self._match(ARROW)) is not None:
            index = self._match(INDEX)
            path.append(
                Arrow(
                    key=self._name() if index is None else index[0],
                    is_index=index is not None,
                    gives_text=arrow[0] == '->>',
                )
            )
        return Field(column, tuple(path))

    def _name(self) -> str:
        quoted = self._match(QUOTED)
        if quoted is not None:
            name = unescape(quoted[1])
        else:
            match = self._match(NAME)
            name = '' if match is None else match[0].strip()
        if not name:
            self._fail('field name (* or [a..z0..9_$])')
        refuse_nul(name)
        return name

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def _skip(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _spaces(self) -> None:
        while self._text[self._at : self._at + 1] in (' ', '\t') and self._at < len(self._text):
            self._at += 1

    def _end(self, expected: str) -> None:
        if self._at < len(self._text):
            self._fail(expected)

    def _fail(self, expected: str) -> NoReturn:
        found = self._text[self._at : self._at + 1]
        found = f'"{found}"' if found else 'end of input'
        raise unparsable(
            self._what,
            self._text,
            column=self._at + 1,
            details=f'unexpected {found} expecting {expected}',
        )


def unescape(text: str) -> str:
    return re.sub(r'\\(.)', r'\1', text, flags=re.DOTALL)


def refuse_nul(text: str) -> None:
    # In a parameter in text format a NUL would end the value early and match other rows.
    if '\x00' in text:
        raise nul_byte()


def nul_byte() -> Refusal:
    return failure(400, '22021', 'invalid byte sequence for encoding "UTF8": 0x00')
