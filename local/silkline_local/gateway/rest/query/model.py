"""What a query string can request of a result: columns, conditions, order and rows.

Only the data; `parser.py` reads it from a query string and `sql.py` writes it as SQL.
"""

from dataclasses import dataclass
from typing import Literal

from silkline_local.gateway.rest.query.ranges import ALL, RowRange

# `*` stands for `%`: a percent sign would have to be escaped in a URL.
PATTERNS = frozenset({'like', 'ilike'})
OPERATORS = {
    'eq': '=',
    'neq': '<>',
    'gt': '>',
    'gte': '>=',
    'lt': '<',
    'lte': '<=',
    'like': 'LIKE',
    'ilike': 'ILIKE',
    'match': '~',
    'imatch': '~*',
    'isdistinct': 'IS DISTINCT FROM',
    'cs': '@>',
    'cd': '<@',
    'ov': '&&',
    'sl': '<<',
    'sr': '>>',
    'nxr': '&<',
    'nxl': '&>',
    'adj': '-|-',
}
TRUTHS = {
    'null': 'NULL',
    'not_null': 'NOT NULL',
    'true': 'TRUE',
    'false': 'FALSE',
    'unknown': 'UNKNOWN',
}


@dataclass(frozen=True, slots=True)
class Arrow:
    """One step into a JSON value: `->key`, `->>key`, `->0`."""

    key: str
    is_index: bool
    gives_text: bool


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or the value at a path inside its JSON value."""

    column: str
    path: tuple[Arrow, ...] = ()


@dataclass(frozen=True, slots=True)
class SelectItem:
    """One item of `select`; without a field, all columns."""

    field: Field | None
    alias: str | None = None
    cast: str | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """`operator` is a key of `OPERATORS`, or `is` with one of `TRUTHS`, or `in` with a list."""

    field: Field
    operator: str
    value: str | tuple[str, ...]
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class ConditionGroup:
    """Conditions of which all must hold, or any."""

    operator: Literal['and', 'or']
    members: 'tuple[Condition | ConditionGroup, ...]'
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class OrderTerm:
    """One item of `order`; None leaves the choice to Postgres."""

    field: Field
    direction: Literal['asc', 'desc'] | None = None
    nulls: Literal['nullsfirst', 'nullslast'] | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """The whole query string; `arguments` are those of a function called by GET."""

    select: tuple[SelectItem, ...] = ()
    conditions: tuple[Condition | ConditionGroup, ...] = ()
    order: tuple[OrderTerm, ...] = ()
    rows: RowRange = ALL
    arguments: tuple[tuple[str, str], ...] = ()


EMPTY_QUERY = Query()
