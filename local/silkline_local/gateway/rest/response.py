"""The response to a request that the database has answered.

Owns the headers that describe the result, and what a function may override: status and headers by
`set_config('response.status', …)` and `set_config('response.headers', …)`.
"""

import re
from collections.abc import Mapping

import msgspec
from aiohttp import hdrs, web
from multidict import CIMultiDict

from silkline_local.gateway.rest.database.transaction import ResultRow
from silkline_local.gateway.rest.errors import failure, is_header
from silkline_local.gateway.rest.query.ranges import RowRange, content_range, range_status

STATUS = re.compile(rb'[2-9][0-9]{2}')
HEADERS = msgspec.json.Decoder(list[dict[str, str]])


def make_response(
    row: ResultRow,
    rows: RowRange,
    *,
    total: int | None,
    content_type: str | None,
    applied: str,
    is_head: bool,
    further: Mapping[str, str],
) -> web.Response:
    """Without a content type there is no body: 204."""
    status = range_status(rows, count=row.count, total=total)
    headers = CIMultiDict(further)
    headers['Content-Range'] = content_range(rows, count=row.count, total=total)
    if applied:
        headers['Preference-Applied'] = applied
    if content_type is None:
        status = 204
    else:
        headers[hdrs.CONTENT_TYPE] = content_type
    if row.headers is not None:
        override_headers(headers, row.headers)
    if row.status is not None:
        status = overriding_status(row.status)
    body = None if content_type is None or is_head else row.body
    return web.Response(status=status, headers=headers, body=body)


def override_headers(headers: CIMultiDict[str], given: bytes) -> None:
    """Replace headers by the given ones of the same name; a name may be given twice."""
    try:
        objects = HEADERS.decode(given)
    except msgspec.DecodeError:
        raise bad_headers() from None
    pairs = [pair for one in objects for pair in one.items()]
    if len(pairs) != len(objects) or not all(is_header(*pair) for pair in pairs):
        raise bad_headers()
    for name, _ in pairs:
        headers.popall(name, None)
    for name, value in pairs:
        headers.add(name, value)


def overriding_status(given: bytes) -> int:
    # A status below 200 does not end a response: the client would wait for another one.
    if STATUS.fullmatch(given) is None:
        raise failure(500, 'PGRST112', 'response.status guc must be a valid status code')
    return int(given)


def bad_headers() -> Exception:
    return failure(
        500,
        'PGRST111',
        'response.headers guc must be a JSON array composed of objects with a single key and a '
        'string value',
    )
