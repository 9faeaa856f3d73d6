"""Errors in PostgREST's words: code, message, details, hint, and the status that goes with them.

Owns the map from SQLSTATE to HTTP status and the codes PGRSTnnn. Everything here returns a
`Refusal`; the caller raises it.
"""

import re
from collections.abc import Mapping

import msgspec

from silkline_local.gateway.http import Refusal

BEARER = {'WWW-Authenticate': 'Bearer'}

# The longest prefix decides; any other code is a 400.
STATUS_BY_SQLSTATE = {
    '08': 503,
    '09': 500,
    '0L': 403,
    '0P': 403,
    '21000': 500,
    '23503': 409,
    '23505': 409,
    '25': 500,
    '25006': 405,
    '28': 403,
    '2D': 500,
    '38': 500,
    '39': 500,
    '3B': 500,
    '40': 500,
    '42883': 404,
    '42P01': 404,
    '42P17': 500,
    '53': 503,
    '53400': 500,
    '54': 500,
    '55': 500,
    '57': 500,
    '57P01': 503,
    '58': 500,
    'F0': 500,
    'HV': 500,
    'P0': 500,
    'P0001': 400,
    'XX': 500,
}
MISSING_ROLE = re.compile(r'role .* does not exist', re.DOTALL)
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
HEADER_VALUE = re.compile(r'[^\x00-\x08\x0a-\x1f\x7f]*')
# Set by the server itself: another value would break the framing of the response.
FRAMING = frozenset({'content-length', 'transfer-encoding', 'connection'})


class DatabaseError(Exception):
    """The error that Postgres returned instead of a result."""

    def __init__(
        self, sqlstate: str, message: str, details: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(f'{sqlstate}: {message}')
        self.sqlstate = sqlstate
        self.message = message
        self.details = details
        self.hint = hint


class RaisedMessage(msgspec.Struct):
    """The message of `raise sqlstate 'PGRST'`."""

    code: str
    message: str
    details: str | None = None
    hint: str | None = None


class RaisedDetail(msgspec.Struct):
    """The detail of `raise sqlstate 'PGRST'`."""

    status: int
    headers: dict[str, str]
    status_text: str | None = None


def failure(
    status: int,
    code: str,
    message: str,
    *,
    details: object = None,
    hint: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Refusal:
    return Refusal(
        status,
        {'code': code, 'details': details, 'hint': hint, 'message': message},
        {'Proxy-Status': f'PostgREST; error={header_safe(code)}', **(headers or {})},
    )


def not_supported(what: str, *, hint: str | None = None) -> Refusal:
    """A feature that PostgREST has and this stand-in does not."""
    return failure(
        400,
        'PGRST127',
        'Feature not implemented',
        details=f'{what} is not supported by the local stack',
        hint=hint,
    )


def unparsable(what: str, text: str, *, column: int, details: str) -> Refusal:
    return failure(
        400,
        'PGRST100',
        f'"failed to parse {what} ({text})" (line 1, column {column})',
        details=details,
    )


def bad_body(message: str) -> Refusal:
    return failure(400, 'PGRST102', message)


def bad_range(details: str, *, headers: Mapping[str, str] | None = None) -> Refusal:
    return failure(
        416, 'PGRST103', 'Requested range not satisfiable', details=details, headers=headers
    )


def bad_token(message: str, *, code: str, details: str | None = None) -> Refusal:
    description = msgspec.json.encode(message).decode()
    return failure(
        401,
        code,
        message,
        details=details,
        headers={
            'WWW-Authenticate': f'Bearer error="invalid_token", error_description={description}'
        },
    )


def not_singular(count: int) -> Refusal:
    return failure(
        406,
        'PGRST116',
        'Cannot coerce the result to a single JSON object',
        details=f'The result contains {count} rows',
    )


def unreachable(details: str) -> Refusal:
    return failure(
        503,
        'PGRST000',
        'Database connection error. Retrying the connection.',
        details=details,
    )


def connection_lost(details: str) -> Refusal:
    return failure(
        503, 'PGRST001', 'Database client error. Retrying the connection.', details=details
    )


def no_schema_cache() -> Refusal:
    return failure(503, 'PGRST002', 'Could not query the database for the schema cache. Retrying.')


def pool_timeout() -> Refusal:
    return failure(504, 'PGRST003', 'Timed out acquiring connection from connection pool.')


def from_database(error: DatabaseError, *, is_anonymous: bool) -> Refusal:
    if error.sqlstate == 'PGRST':
        return raised(error)
    status = status_of(error, is_anonymous=is_anonymous)
    return failure(
        status,
        error.sqlstate,
        error.message,
        details=error.details,
        hint=error.hint,
        headers=BEARER if status == 401 else None,
    )


def status_of(error: DatabaseError, *, is_anonymous: bool) -> int:
    code = error.sqlstate
    if code == '42501':
        return 401 if is_anonymous else 403
    if code.startswith('PT'):
        # The function chooses the status. One below 200 would leave the client waiting.
        return int(code[2:]) if code[2:].isdecimal() and int(code[2:]) >= 200 else 500
    if code == '21000' and error.message.endswith('requires a WHERE clause'):
        return 400
    if code == '22023' and MISSING_ROLE.fullmatch(error.message):
        return 401
    return STATUS_BY_SQLSTATE.get(code) or STATUS_BY_SQLSTATE.get(code[:2]) or 400


def raised(error: DatabaseError) -> Refusal:
    """Answer `raise sqlstate 'PGRST'`, by which a function chooses the whole response."""
    try:
        message = msgspec.json.decode(error.message, type=RaisedMessage)
    except msgspec.DecodeError:
        return bad_raise(
            f"Invalid JSON value for MESSAGE: '{error.message}'",
            "MESSAGE must be a JSON object with obligatory keys: 'code', 'message' and optional "
            "keys: 'details', 'hint'.",
        )
    hint = (
        "DETAIL must be a JSON object with obligatory keys: 'status', 'headers' and optional "
        "key: 'status_text'."
    )
    if error.details is None:
        return bad_raise('DETAIL is missing in the RAISE statement', hint)
    try:
        detail = msgspec.json.decode(error.details, type=RaisedDetail)
    except msgspec.DecodeError:
        return bad_raise(f"Invalid JSON value for DETAIL: '{error.details}'", hint)
    return failure(
        detail.status if 200 <= detail.status <= 999 else 500,
        message.code,
        message.message,
        details=message.details,
        hint=message.hint,
        headers={name: value for name, value in detail.headers.items() if is_header(name, value)},
    )


def bad_raise(details: str, hint: str) -> Refusal:
    return failure(
        500,
        'PGRST121',
        'Could not parse JSON in the "RAISE SQLSTATE \'PGRST\'" error',
        details=details,
        hint=hint,
    )


def is_header(name: str, value: str) -> bool:
    return (
        HEADER_NAME.fullmatch(name) is not None
        and HEADER_VALUE.fullmatch(value) is not None
        and name.lower() not in FRAMING
    )


def header_safe(text: str) -> str:
    return text if HEADER_VALUE.fullmatch(text) else 'unprintable'
