"""Reading what people type: a URL, a time, options, networks, the id of a job."""

import json
import re
from datetime import datetime
from ipaddress import ip_network
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit
from uuid import UUID

import typer

from silkline.errors import NoSuchJob, SettingsError

if TYPE_CHECKING:
    from silkline.queue.rows import JobStatus
    from silkline.queue.rpc import Rpc

STATUSES = ('pending', 'processing', 'paused', 'completed', 'failed', 'stopped', 'cancelled')
LAST = 'last'
# Ids start with a timestamp, so ids of the same day differ at the end.
PART_OF_ID = re.compile(r'[0-9a-f-]{6,35}')
TOO_SHORT = re.compile(r'[0-9a-f-]{1,5}')
# A part of an id is looked up among this many of the newest jobs.
SEARCHED_JOBS = 1000
# If several jobs match, this many are listed.
LISTED_JOBS = 10
# The options of a crawl that are lists.
LIST_OPTIONS = frozenset(('exclude', 'include', 'urls'))
# Not the comma of a regular expression such as [0-9]{1,3}.
LIST_COMMA = re.compile(r',(?![^{}]*\})')
# A host, with or without a port and a path.
WITHOUT_SCHEME = re.compile(r'([\w.-]+)(:\d+)?([/?#].*)?$')


def is_bare_host(url: str) -> bool:
    return WITHOUT_SCHEME.match(url) is not None


def add_scheme(url: str) -> str:
    """Complete a URL without a scheme: https, or http for localhost and IP addresses."""
    match = WITHOUT_SCHEME.match(url)
    if match is None:
        return url
    is_local = match[1] == 'localhost' or re.fullmatch(r'[\d.]+', match[1])
    full_url = f'{"http" if is_local else "https"}://{url}'
    typer.echo(f'silkline: using {full_url}', err=True)
    return full_url


def check_url(url: str) -> None:
    """Refuse what cannot be a URL of a site; the queue checks the rest."""
    if not re.match(r'https?://[^/?#]', url, re.IGNORECASE):
        raise SettingsError(f'{url!r} is not a URL: expected something like https://example.com')
    check_port(url)


def check_port(url: str) -> None:
    """Refuse a port that does not exist: the queue accepts any number."""
    try:
        is_valid = urlsplit(url).port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise SettingsError(
            f'{url!r} is not a URL: its host or port is invalid (a port is a number from 1 to'
            ' 65535)'
        )


def use_ascii_hosts(payload: dict[str, object]) -> dict[str, object]:
    """The payload with the hosts of its URLs as browsers write them, such as xn--bcher-kva.example.

    The queue compares hosts as text, so it refuses every other spelling.
    """
    from silkline.crawl.urls import with_ascii_host

    changed = dict(payload)
    url, urls = payload.get('url'), payload.get('urls')
    if isinstance(url, str):
        changed['url'] = with_ascii_host(url)
    if isinstance(urls, list):
        changed['urls'] = [
            with_ascii_host(one) if isinstance(one, str) else one
            for one in cast(list[object], urls)
        ]
    return changed


def read_statuses(words: list[str]) -> 'list[JobStatus]':
    for word in words:
        if word not in STATUSES:
            raise SettingsError(f'{word!r} is not a status: use one of {", ".join(STATUSES)}')
    return cast('list[JobStatus]', words)


def read_time(text: str, *, option: str) -> datetime:
    """A date, or a date and time; in local time unless it has a zone."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError) as error:
        raise SettingsError(
            f'{option} {text!r} is not a time: expected something like 2026-12-24,'
            ' 2026-12-24T18:00 (local time) or 2026-12-24T18:00Z'
        ) from error


def read_options(words: list[str]) -> dict[str, object]:
    """`KEY=VALUE`: the value is JSON if it parses as JSON, else text. No option takes null.

    An option that takes a list may be repeated, and its text may have commas between the values.
    """
    options: dict[str, object] = {}
    for word in words:
        name, sign, text = word.partition('=')
        if not name or not sign:
            raise SettingsError(f'--option {word!r} is not of the form KEY=VALUE')
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if name in LIST_OPTIONS:
            values = value if isinstance(value, list) else LIST_COMMA.split(text)
            options[name] = [*cast(list[object], options.get(name, [])), *cast(list[str], values)]
        else:
            options[name] = text if value is None else value
    return options


def read_networks(words: list[str]) -> tuple[str, ...]:
    """CIDR networks in canonical form; one word may hold several, with commas or spaces between."""
    networks: list[str] = []
    for text in ' '.join(words).replace(',', ' ').split():
        try:
            networks.append(str(ip_network(text)))
        except ValueError as error:
            # The error names the value.
            raise SettingsError(
                f'--allow-network: {error}; expected something like 127.0.0.0/8'
            ) from error
    return tuple(networks)


async def find_job_id(rpc: 'Rpc', job: str) -> UUID:
    if job == LAST:
        newest = await rpc.list_jobs(statuses=[], host=None, limit=1)
        if not newest:
            raise SettingsError('no jobs yet: silkline crawl URL starts one')
        return newest[0].id
    try:
        return UUID(job)
    except ValueError:
        return await find_job_by_part(rpc, job.lower())


async def find_job_by_part(rpc: 'Rpc', part: str) -> UUID:
    """The one job, among the newest, whose id starts or ends with `part`."""
    if TOO_SHORT.fullmatch(part):
        raise SettingsError(
            f"{part!r} is too short: type six or more characters of the job's id;"
            ' silkline jobs lists ids'
        )
    if not PART_OF_ID.fullmatch(part):
        raise SettingsError(f'{part!r} is not a job id; silkline jobs lists ids')
    newest = await rpc.list_jobs(statuses=[], host=None, limit=SEARCHED_JOBS)
    found = [job for job in newest if str(job.id).startswith(part) or str(job.id).endswith(part)]
    if not found:
        searched = (
            'no job' if len(newest) < SEARCHED_JOBS else f'none of the {len(newest)} newest jobs'
        )
        raise NoSuchJob(
            f'{searched} has an id that starts or ends with {part!r}; silkline jobs lists ids'
        )
    if len(found) > 1:
        listed = found[:LISTED_JOBS]
        width = max(len(job.status) for job in listed)
        lines = ''.join(f'\n  {job.id}  {job.status:{width}}  {job.url}' for job in listed)
        more = f'\n  and {len(found) - LISTED_JOBS} older jobs' * (len(found) > LISTED_JOBS)
        raise NoSuchJob(
            f'{part!r} must match exactly one job, but matches {len(found)}: type more characters'
            f' from the end of the id{lines}{more}'
        )
    return found[0].id
