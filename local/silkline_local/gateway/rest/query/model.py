"""What a query string can ask of a result: columns, conditions, order and rows.

Only the words; `parser.py` reads them from a query string and `sql.py` writes them as SQL.
"""

from dataclasses import dataclass
from typing import Literal

from silkline_local.gateway.rest.query.ranges import ALL, Range

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
    """A column, or what its JSON value has at a path."""

    column: str
    path: tuple[Arrow, ...] = ()


@dataclass(frozen=True, slots=True)
class Selected:
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
class Group:
    """Conditions of which all hold, or any."""

    operator: Literal['and', 'or']
    members: 'tuple[Condition | Group, ...]'
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """One item of `order`; None leaves it to Postgres."""

    field: Field
    direction: Literal['asc', 'desc'] | None = None
    nulls: Literal['nullsfirst', 'nullslast'] | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """Everything that is asked; `arguments` are for the function that is called by GET."""

    select: tuple[Selected, ...] = ()
    conditions: tuple[Condition | Group, ...] = ()
    order: tuple[Order, ...] = ()
    rows: Range = ALL
    arguments: tuple[tuple[str, str], ...] = ()


NOTHING_ASKED = Query()
