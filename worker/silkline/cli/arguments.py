"""What people type about a job, read: its URL, a time, its options, its id."""

import json
import re
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import UUID

import typer

from silkline.errors import NoSuchJob, SettingsError

if TYPE_CHECKING:
    from silkline.queue.rpc import Rpc

LAST = 'last'
# Ids begin with their time, so that it is the end in which those of one day differ.
PART_OF_ID = re.compile(r'[0-9a-f-]{6,35}')
TOO_SHORT = re.compile(r'[0-9a-f-]{1,5}')
# Among which a part of an id is looked for, and of which so many are listed.
SEARCHED_JOBS = 1000
LISTED_JOBS = 10
# A host, perhaps a port and a path: what people type.
WITHOUT_SCHEME = re.compile(r'([\w.-]+)(:\d+)?([/?#].*)?$')


def with_scheme(url: str) -> str:
    """What somebody means who leaves out the scheme: https, and http for this machine."""
    match = WITHOUT_SCHEME.match(url)
    if match is None:
        return url
    is_local = match[1] == 'localhost' or re.fullmatch(r'[\d.]+', match[1])
    meant = f'{"http" if is_local else "https"}://{url}'
    typer.echo(f'silkline: {url} is taken for {meant}', err=True)
    return meant


def refuse_port(url: str) -> None:
    """The queue takes any number for one."""
    try:
        is_port = urlsplit(url).port != 0
    except ValueError:
        is_port = False
    if not is_port:
        raise SettingsError(
            f'{url!r} is no address of a site: its host or its port is wrong (a port is from 1 to'
            ' 65535)'
        )


def read_time(text: str) -> datetime:
    """A date, or a date and a time; without a zone, as the clock on the wall shows it."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError) as error:
        raise SettingsError(
            f'--run-after {text!r} is no time: it is written like 2026-12-24, 2026-12-24T18:00'
            ' (here) or 2026-12-24T18:00Z'
        ) from error


def read_options(words: list[str]) -> dict[str, object]:
    """`KEY=VALUE`, the value as JSON if it is JSON, else as text. No option is null."""
    options: dict[str, object] = {}
    for word in words:
        name, sign, text = word.partition('=')
        if not name or not sign:
            raise SettingsError(f'--option {word} is not of the form KEY=VALUE')
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        options[name] = text if value is None else value
    return options


async def find_id(rpc: 'Rpc', job: str) -> UUID:
    if job == LAST:
        newest = await rpc.list_jobs(statuses=[], host=None, limit=1)
        if not newest:
            raise SettingsError('there is no job yet: silkline crawl URL makes one')
        return newest[0].id
    try:
        return UUID(job)
    except ValueError:
        return await find_by_part(rpc, job.lower())


async def find_by_part(rpc: 'Rpc', part: str) -> UUID:
    """The one job among the newest whose id begins or ends so."""
    if TOO_SHORT.fullmatch(part):
        raise SettingsError(
            f"{part!r} is too short: give six or more characters of a job's id;"
            ' silkline jobs lists them'
        )
    if not PART_OF_ID.fullmatch(part):
        raise SettingsError(f'{part!r} is no id of a job; silkline jobs lists them')
    newest = await rpc.list_jobs(statuses=[], host=None, limit=SEARCHED_JOBS)
    found = [job for job in newest if str(job.id).startswith(part) or str(job.id).endswith(part)]
    if not found:
        which = (
            'no job' if len(newest) < SEARCHED_JOBS else f'none of the newest {len(newest)} jobs'
        )
        raise NoSuchJob(f'{which} begins or ends with {part!r}: silkline jobs lists them')
    if len(found) > 1:
        listed = found[:LISTED_JOBS]
        width = max(len(job.status) for job in listed)
        lines = ''.join(f'\n  {job.id}  {job.status:{width}}  {job.url}' for job in listed)
        more = f'\n  and {len(found) - LISTED_JOBS} older ones' * (len(found) > LISTED_JOBS)
        raise NoSuchJob(
            f'{len(found)} jobs begin or end with {part!r}: type more, best from the end'
            f'{lines}{more}'
        )
    return found[0].id
