"""Which rows of a result a request wants, and how the response says which rows it has.

`limit` and `offset` of the query string and the `Range` header become one `RowRange`. From it come
the status (200, 206, 416) and `Content-Range`.
"""

import re
from dataclasses import dataclass

from silkline_local.gateway.rest.errors import bad_range

HEADER = re.compile(r'([0-9]+)-([0-9]*)')
INTEGER = re.compile(r'-?[0-9]+')
# The largest bigint; no table has that many rows.
LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows from `offset` on, at most `limit` of them."""

    offset: int = 0
    limit: int | None = None


ALL = RowRange()


def requested_range(limit: str | None, offset: str | None, *, header: str | None) -> RowRange:
    """Combine both; a value that is not a number counts as not given, as with PostgREST."""
    first = max(integer(offset) or 0, 0)
    size = integer(limit)
    if size == 0:
        return RowRange(first, 0)
    if size is not None and size < 0:
        raise bad_range('Limit should be greater than or equal to zero.')
    end = None if size is None else first + size
    match = None if header is None else HEADER.fullmatch(header.strip())
    if match is not None:
        lower, upper = number(match[1]), integer(match[2])
        first = max(first, lower)
        if upper is not None:
            if upper < lower:
                raise bad_range(
                    'The lower boundary must be lower than or equal to the upper boundary in the '
                    'Range header.'
                )
            end = upper + 1 if end is None else min(end, upper + 1)
        if end is not None and end <= first:
            raise bad_range('Limit should be greater than or equal to zero.')
    return RowRange(first, None if end is None else end - first)


def integer(text: str | None) -> int | None:
    return number(text) if text is not None and INTEGER.fullmatch(text) else None


def number(digits: str) -> int:
    # int() refuses more than 4,300 digits.
    return min(int(digits[:4000]), LARGEST)


def content_range(requested: RowRange, *, count: int, total: int | None) -> str:
    rows = f'{requested.offset}-{requested.offset + count - 1}' if count and total != 0 else '*'
    return f'{rows}/{"*" if total is None else total}'


def range_status(requested: RowRange, *, count: int, total: int | None) -> int:
    if total is None:
        return 200
    if requested.offset > total:
        headers = {'Content-Range': content_range(requested, count=0, total=total)}
        raise bad_range(
            f'An offset of {requested.offset} was requested, but there are only {total} rows.',
            headers=headers,
        )
    return 206 if count < total else 200
