"""What requests may name: the functions and tables of the exposed schemas.

Owns the snapshot of the schema that requests are checked against, and the choice of the function
that a call means. `watcher.py` reloads it.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import psycopg

from silkline_local.gateway.http import Refusal
from silkline_local.gateway.rest.errors import failure

QUERY = Path(__file__).with_suffix('.sql')

# The settings of a function that apply to the whole call, including its planning.
HOISTED = frozenset(
    {'statement_timeout', 'plan_filter.statement_cost_limit', 'default_transaction_isolation'}
)
ISOLATION = 'default_transaction_isolation'
CLOSE_ENOUGH = 0.33


class Argument(msgspec.Struct, frozen=True):
    """An input of a function; without a name it takes the whole body."""

    name: str
    type: str
    is_required: bool
    is_variadic: bool


class Function(msgspec.Struct, frozen=True):
    """A function as its callers see it."""

    schema: str
    name: str
    arguments: tuple[Argument, ...]
    is_set: bool
    is_composite: bool
    # Of a named type, such as a table's: its columns may change while the function stays.
    is_row: bool
    is_void: bool
    is_volatile: bool
    settings: tuple[tuple[str, str], ...]

    @property
    def takes_whole_body(self) -> bool:
        return len(self.arguments) == 1 and not self.arguments[0].name

    @property
    def hoisted(self) -> tuple[tuple[str, str], ...]:
        return tuple(
            (name, value) for name, value in self.settings if name in HOISTED - {ISOLATION}
        )

    @property
    def isolation(self) -> str | None:
        return dict(self.settings).get(ISOLATION)

    def accepts(self, given: frozenset[str]) -> bool:
        """Whether it can be called with exactly these names."""
        if self.takes_whole_body:
            return False
        required = {argument.name for argument in self.arguments if argument.is_required}
        return required <= given <= {argument.name for argument in self.arguments}


class Table(msgspec.Struct, frozen=True):
    """A table or view. Postgres checks its columns; only the JSON columns are known here."""

    schema: str
    name: str
    json_columns: frozenset[str]


class SchemaSnapshot(msgspec.Struct, frozen=True):
    """The result of `schema_cache.sql`."""

    functions: tuple[Function, ...]
    tables: tuple[Table, ...]
    roles: dict[str, tuple[tuple[str, str], ...]]


class SchemaCache:
    """One snapshot of the schema; `statements` keeps the SQL built from it."""

    def __init__(self, snapshot: SchemaSnapshot) -> None:
        self.statements: dict[object, bytes] = {}
        self._functions: dict[tuple[str, str], list[Function]] = {}
        for function in snapshot.functions:
            self._functions.setdefault((function.schema, function.name), []).append(function)
        self._tables = {(table.schema, table.name): table for table in snapshot.tables}
        self._roles = {
            role: (
                tuple(pair for pair in settings if pair[0] != ISOLATION),
                dict(settings).get(ISOLATION),
            )
            for role, settings in snapshot.roles.items()
        }

    def role_settings(self, role: str) -> tuple[tuple[tuple[str, str], ...], str | None]:
        """The settings of a role, and the isolation of its transactions."""
        return self._roles.get(role, ((), None))

    def table(self, schema: str, name: str) -> Table:
        found = self._tables.get((schema, name))
        if found is not None:
            return found
        nearest = closest(name, (other for owner, other in self._tables if owner == schema))
        raise failure(
            404,
            'PGRST205',
            f"Could not find the table '{schema}.{name}' in the schema cache",
            hint=nearest and f"Perhaps you meant the table '{schema}.{nearest}'",
        )

    def function(
        self, schema: str, name: str, *, given: frozenset[str], has_body: bool
    ) -> Function:
        """Choose the function that a call with these argument names means."""
        overloads = self._functions.get((schema, name), [])
        matching = [function for function in overloads if function.accepts(given)]
        if not matching and has_body:
            matching = [
                function
                for function in overloads
                if function.takes_whole_body and function.arguments[0].type in ('json', 'jsonb')
            ]
        if len(matching) == 1:
            return matching[0]
        if matching:
            raise ambiguous(matching)
        raise self._no_function(schema, name, given=sorted(given), has_body=has_body)

    def _no_function(self, schema: str, name: str, *, given: list[str], has_body: bool) -> Refusal:
        overloads = self._functions.get((schema, name))
        if overloads:
            lists = (
                listed(argument.name for argument in function.arguments) for function in overloads
            )
            nearest = closest(listed(given), lists)
            nearest = nearest and f'{name}{nearest}'
        else:
            nearest = closest(name, (other for owner, other in self._functions if owner == schema))
        names = ', '.join(given)
        looked_for = f' with parameter{"s" if len(given) > 1 else ""} {names}'
        if not given:
            looked_for = ' without parameters'
        if has_body:
            looked_for += ' or with a single unnamed json/jsonb parameter'
        return failure(
            404,
            'PGRST202',
            f'Could not find the function {schema}.{name}'
            f'{f"({names})" if given else " without parameters"} in the schema cache',
            details=f'Searched for the function {schema}.{name}{looked_for}, but no matches were '
            'found in the schema cache.',
            hint=nearest and f'Perhaps you meant to call the function {schema}.{nearest}',
        )


async def load(connection: psycopg.AsyncConnection, schemas: Sequence[str]) -> SchemaCache:
    async with connection.transaction():
        await connection.execute("set local search_path = ''")
        cursor = psycopg.AsyncRawCursor(connection)
        await cursor.execute(QUERY.read_bytes(), [list(schemas)])
        rows = await cursor.fetchall()
    return SchemaCache(msgspec.json.decode(rows[0][0], type=SchemaSnapshot))


def ambiguous(functions: Sequence[Function]) -> Refusal:
    described = (
        f'{function.schema}.{function.name}('
        + ', '.join(f'{argument.name} => {argument.type}' for argument in function.arguments)
        + ')'
        for function in functions
    )
    return failure(
        300,
        'PGRST203',
        f'Could not choose the best candidate function between: {", ".join(described)}',
        hint='Try renaming the parameters or the function itself in the database so function '
        'overloading can be resolved',
    )


def listed(names: Iterable[str]) -> str:
    return f'({", ".join(sorted(names))})'


def closest(name: str, others: Iterable[str]) -> str | None:
    """The most similar name, if any is similar enough."""
    scored = [(similarity(name, other), other) for other in others]
    score, best = max(scored, default=(0.0, ''))
    return best if score >= CLOSE_ENOUGH else None


def similarity(left: str, right: str) -> float:
    """One minus the edit distance, divided by the length of the longer text."""
    row = list(range(len(right) + 1))
    for number, char in enumerate(left, 1):
        previous, row[0] = row[0], number
        for column, other in enumerate(right, 1):
            previous, row[column] = (
                row[column],
                min(row[column] + 1, row[column - 1] + 1, previous + (char != other)),
            )
    return 1 - row[-1] / max(len(left), len(right), 1)
