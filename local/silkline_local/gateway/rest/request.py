"""Reading a request: who calls, which schema, which form of response, which body.

Owns headers and bodies, and refuses a request that cannot be served before it takes a connection.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import msgspec
from aiohttp import hdrs, web

from silkline_local.gateway.callers import BadClaims, BadToken, Caller, Callers
from silkline_local.gateway.http import UnreadableBody, encode_headers, encode_texts, read_body
from silkline_local.gateway.rest import preferences
from silkline_local.gateway.rest.errors import bad_body, bad_token, failure
from silkline_local.gateway.rest.media import ResponseForm, refuse_other_than_json, response_form
from silkline_local.gateway.rest.preferences import Preferences, parse_preferences
from silkline_local.gateway.rest.query.model import EMPTY_QUERY, Query
from silkline_local.gateway.rest.query.parser import parse_query

PREFIX = '/rest/v1'
LARGEST_BYTES = 100 * 1024 * 1024
LEEWAY_SECONDS = 30.0

ARGUMENTS = msgspec.json.Decoder(dict[str, msgspec.Raw])
ANY_JSON = msgspec.json.Decoder(msgspec.Raw)


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """The parts of a request that every route needs."""

    caller: Caller
    method: str
    path: str
    schema: str
    is_schema_named: bool
    form: ResponseForm
    preferences: Preferences

    @property
    def segments(self) -> list[str]:
        try:
            return [unquote(part, errors='strict') for part in self.path[1:].split('/')]
        except UnicodeDecodeError:
            raise invalid_path() from None


@dataclass(frozen=True, slots=True)
class Arguments:
    """The body of a call: the names of its members, and the bytes that go to Postgres."""

    names: frozenset[str]
    json: bytes
    is_array: bool = False


def read_request(request: web.Request, callers: Callers, schemas: Sequence[str]) -> ParsedRequest:
    headers = request.headers
    profile = headers.get(
        'Accept-Profile' if request.method in ('GET', 'HEAD', 'OPTIONS') else 'Content-Profile'
    )
    caller = identify(request, callers)
    if profile is not None and profile not in schemas:
        raise failure(
            406,
            'PGRST106',
            f'Invalid schema: {profile}',
            hint=f'Only the following schemas are exposed: {", ".join(schemas)}',
        )
    given = headers.getall('Prefer', None)
    return ParsedRequest(
        caller=caller,
        method=request.method,
        path=request.rel_url.raw_path.removeprefix(PREFIX) or '/',
        schema=profile or schemas[0],
        is_schema_named=profile is not None or len(schemas) > 1,
        form=response_form(headers.get(hdrs.ACCEPT) or '*/*'),
        preferences=parse_preferences(','.join(given)) if given else preferences.NONE,
    )


def identify(request: web.Request, callers: Callers) -> Caller:
    headers = request.headers
    key = None if headers.get('apikey') else request.query.get('apikey')
    try:
        caller = callers.by_headers(headers, key=key)
    except BadClaims as error:
        raise bad_token(str(error), code='PGRST303') from None
    except BadToken:
        token = headers.get(hdrs.AUTHORIZATION, '').partition(' ')[2].strip()
        parts = token.count('.') + 1
        if parts != 3:
            raise bad_token(f'Expected 3 parts in JWT; got {parts}', code='PGRST301') from None
        raise bad_token(
            'No suitable key or wrong key type',
            code='PGRST301',
            details='None of the keys was able to decode the JWT',
        ) from None
    refuse_out_of_time(caller)
    return caller


def refuse_out_of_time(caller: Caller) -> None:
    now = time.time()
    if caller.expires_at is not None and whole(caller.expires_at) < now - LEEWAY_SECONDS:
        raise bad_token('JWT expired', code='PGRST303')
    if caller.not_before is not None and whole(caller.not_before) > now + LEEWAY_SECONDS:
        raise bad_token('JWT not yet valid', code='PGRST303')
    if caller.issued_at is not None and whole(caller.issued_at) > now + LEEWAY_SECONDS:
        raise bad_token('JWT issued at future', code='PGRST303')


def whole(seconds: float) -> float:
    """PostgREST treats a fraction, or a number of more than 64 bits, as zero."""
    return seconds if abs(seconds) < 2**63 and seconds == int(seconds) else 0


def read_query(request: web.Request, *, takes_arguments: bool) -> Query:
    # HTTP defines ranges for GET only.
    range_header = request.headers.get(hdrs.RANGE) if request.method == 'GET' else None
    if not request.query_string and range_header is None:
        return EMPTY_QUERY
    # The key may be in the query string, too; Supabase's edge removes it before PostgREST.
    pairs = [(name, value) for name, value in request.query.items() if name != 'apikey']
    return parse_query(pairs, range_header=range_header, takes_arguments=takes_arguments)


async def read_arguments(request: web.Request) -> Arguments:
    """Decode the body only as far as the names of its members."""
    content_type = request.headers.get(hdrs.CONTENT_TYPE)
    if content_type is not None:
        refuse_other_than_json(content_type)
    try:
        body = await read_body(request, largest_bytes=LARGEST_BYTES)
    except UnreadableBody as error:
        raise failure(error.status, 'PGRST102', str(error)) from error
    if not body:
        return Arguments(frozenset(), b'{}')
    try:
        return Arguments(frozenset(ARGUMENTS.decode(body)), body)
    except msgspec.ValidationError:
        pass
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise bad_body('Empty or invalid json') from None
    try:
        ANY_JSON.decode(body)
    except (msgspec.DecodeError, RecursionError):
        raise bad_body('Empty or invalid json') from None
    if body.lstrip().startswith(b'['):
        return Arguments(frozenset(), body, is_array=True)
    # As with PostgREST, a bare value counts as no arguments.
    return Arguments(frozenset(), b'[]')


def headers_json(request: web.Request) -> bytes:
    """The headers as functions read them in `request.headers`, without the cookies."""
    return encode_headers(pair for pair in request.headers.items() if pair[0].lower() != 'cookie')


def cookies_json(request: web.Request) -> bytes:
    # Names of cookies stay as they were sent, unlike names of headers.
    return encode_texts(dict(request.cookies)) if hdrs.COOKIE in request.headers else b'{}'


def invalid_path() -> Exception:
    return failure(404, 'PGRST125', 'Invalid path specified in request URL')
