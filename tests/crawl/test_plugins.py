"""Plugins inside real runners: what they can do, and what happens when they fail."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from silkline import protocol
from silkline.supervisor.outcome import Outcome
from silkline.supervisor.process import Runner
from silkline.supervisor.spawn import PROGRAM, ROOT
from tests.support.plugins import install
from tests.support.runner import Frontier, supervise
from tests.support.site import Answer, Site, page

SOURCE = """
import asyncio
from dataclasses import replace

from silkline.plugins import Page, Reading


class Upper:
    kind, api, version = 'extractor', 1, '7'

    def markdown(self, html, *, url):
        return html.upper()


class Fragile(Upper):
    def markdown(self, html, *, url):
        raise RuntimeError('it broke')


class Echo:
    kind, api = 'fetcher', 1

    async def open(self, egress):
        self.egress = egress

    async def fetch(self, url, *, headers, max_bytes, timeout_seconds):
        response = await self.egress.fetch(
            url, headers=headers, max_bytes=max_bytes, timeout_seconds=timeout_seconds
        )
        return replace(response, body=b'<title>By plugin</title>' + response.body)

    async def close(self):
        pass


class Faulty(Echo):
    async def fetch(self, url, **_):
        raise RuntimeError('no way')


class Odd(Echo):
    # Misbehaves at /a only, in the way its name says.

    async def fetch(self, url, **wanted):
        if url.endswith('/a'):
            return await self.misbehave(url, **wanted)
        return await self.egress.fetch(url, **wanted)


class Nothing(Odd):
    async def misbehave(self, url, **wanted):
        return None


class Text(Odd):
    async def misbehave(self, url, **wanted):
        return replace(await self.egress.fetch(url, **wanted), body='text')


class Cancelled(Odd):
    async def misbehave(self, url, **wanted):
        task = asyncio.ensure_future(asyncio.sleep(9))
        task.cancel()
        await task


class Ending(Odd):
    async def misbehave(self, url, **wanted):
        raise SystemExit(3)


class Wordy(Odd):
    async def misbehave(self, url, **wanted):
        raise RuntimeError('word ' * 10_000)


class Hanging(Odd):
    async def misbehave(self, url, **wanted):
        await asyncio.Event().wait()


class Lower(Echo):
    async def fetch(self, url, **wanted):
        response = await self.egress.fetch(url, **wanted)
        return replace(response, headers={'content-type': 'text/html'})


class Shut(Echo):
    async def open(self, egress):
        raise RuntimeError('no key')


class Slamming(Echo):
    async def close(self):
        raise RuntimeError('it slams')


class Words:
    kind, api = 'page_hook', 1

    def change(self, page):
        page.metadata['words'] = len((page.markdown or '').split())


class Titles:
    kind, api = 'job_kind', 1

    def __init__(self):
        self.seen = 0

    def starts(self, payload):
        return [payload['url']]

    def read(self, response, *, depth):
        self.seen += 1
        links = ['/two'] if depth == 0 else []
        return Reading(links=links, page=Page(url=response.url, title=f'At {depth}'))

    def result(self):
        return {'seen': self.seen}


class Sizes(Titles):
    version = '3'

    def read(self, response, *, depth):
        page = Page(url=response.url, title=f'{len(response.body)} bytes')
        return Reading(links=['/two', 'mailto:a@b.c'], page=page)


class Strange(Titles):
    def read(self, response, *, depth):
        if response.url.endswith('/a'):
            return Reading(page=Page(url=response.url, title=5))
        if response.url.endswith('/b'):
            return {'links': []}
        if response.url.endswith('/c'):
            raise asyncio.CancelledError
        return Reading(links=['/a', '/b', '/c'], page=Page(url=response.url, title='Good'))

    def result(self):
        return {'seen': object()}


class Nowhere(Titles):
    def starts(self, payload):
        return 'https://one.example/'


class Future(Words):
    api = 2


class Lame:
    kind, api = 'page_hook', 1
"""
PLUGINS = {
    'upper': 'Upper',
    'fragile': 'Fragile',
    'echo': 'Echo',
    'faulty': 'Faulty',
    'nothing': 'Nothing',
    'text': 'Text',
    'cancelled': 'Cancelled',
    'ending': 'Ending',
    'wordy': 'Wordy',
    'hanging': 'Hanging',
    'lower': 'Lower',
    'shut': 'Shut',
    'slamming': 'Slamming',
    'words': 'Words',
    'titles': 'Titles',
    'sizes': 'Sizes',
    'strange': 'Strange',
    'nowhere': 'Nowhere',
    'future': 'Future',
    'lame': 'Lame',
    'missing': 'Nobody',
}


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    install(tmp_path, SOURCE, PLUGINS, name='gadgets')
    return tmp_path


def crawl(
    plugins: Path, site: Site, kind: str = 'crawl', **options: Any
) -> tuple[Outcome, dict[str, protocol.Finished], list[str]]:
    """Run one real runner that finds the plugins; returns its outcome, its URLs and its log."""
    frontier = Frontier()
    log: list[str] = []
    start = protocol.Start(
        job_id=uuid4(),
        kind=kind,
        payload={'url': f'{site.url}/', **options},
        allow_networks=['127.0.0.1/32'],
    )
    program = f'import sys; sys.path.append({str(plugins)!r})\n{PROGRAM}'
    command = [sys.executable, '-I', '-c', program, str(ROOT)]

    def watch(runner: Runner, message: protocol.FromRunner) -> None:
        if isinstance(message, protocol.Log):
            log.append(message.message)

    async def run() -> Outcome:
        async with Runner(start, command=command) as runner:
            return await supervise(runner, frontier, watch=watch)

    outcome = asyncio.run(run())
    urls = {
        frontier.urls[key].url.removeprefix(site.url): end for key, end in frontier.ended.items()
    }
    return outcome, urls, log


def page_at(urls: dict[str, protocol.Finished], path: str) -> protocol.Page:
    found = urls[path].page
    assert found is not None
    return found


def test_hooks_see_every_page_and_plugins_that_do_not_load_are_skipped_and_logged(
    plugins: Path,
) -> None:
    with Site({'/': page(text='One two three.')}) as site:
        outcome, urls, log = crawl(plugins, site)
    assert outcome.done is not None
    assert page_at(urls, '/').metadata['words'] > 2
    assert [line.split(':')[0] for line in log] == [
        'skipped plugin future',
        'skipped plugin lame',
        'skipped plugin missing',
    ]


def test_the_extractor_of_a_plugin_makes_the_markdown_and_is_stored_with_it(plugins: Path) -> None:
    with Site({'/': page(text='Words.')}) as site:
        _, urls, _ = crawl(plugins, site, extractor='upper')
    stored = page_at(urls, '/')
    assert 'WORDS.' in (stored.markdown or '')
    assert (stored.extractor, stored.extractor_version) == ('upper', '7')


def test_an_extractor_that_fails_loses_no_page_and_no_link(plugins: Path) -> None:
    with Site({'/': page('/a'), '/a': page()}) as site:
        _, urls, _ = crawl(plugins, site, extractor='fragile')
    assert urls.keys() == {'/', '/a'}
    assert 'it broke' in page_at(urls, '/').metadata['extract_error']


def test_the_fetcher_of_a_plugin_uses_the_same_egress(plugins: Path) -> None:
    with Site({'/': page()}) as site:
        _, urls, _ = crawl(plugins, site, fetcher='echo')
        assert page_at(urls, '/').title == 'By plugin'
        assert site.request_counts() == {'/': 1}
    with Site({'/': page()}, address='127.0.0.2') as site:
        _, urls, _ = crawl(plugins, site, fetcher='echo', obey_robots=False)
        assert urls['/'].skip_reason == 'forbidden_address'
        assert site.log == []


def test_a_fetcher_that_fails_fails_the_page_and_not_the_job(plugins: Path) -> None:
    with Site({'/': page()}) as site:
        outcome, urls, _ = crawl(plugins, site, fetcher='faulty')
    assert outcome.done is not None
    assert urls['/'].error == "the fetcher 'faulty' failed: RuntimeError: no way"


@pytest.mark.parametrize(
    ('fetcher', 'words'),
    [
        ('nothing', 'failed: TypeError: expected a Response, got NoneType'),
        ('text', 'failed: TypeError: the body of its response has type str'),
        ('cancelled', 'failed: CancelledError'),
        ('ending', 'failed: SystemExit: 3'),
        ('wordy', 'failed: RuntimeError: word word'),
    ],
)
def test_a_fetcher_that_misbehaves_costs_one_page(plugins: Path, fetcher: str, words: str) -> None:
    with Site({'/': page('/a', '/b'), '/a': page(), '/b': page()}) as site:
        outcome, urls, _ = crawl(plugins, site, fetcher=fetcher)
    assert outcome.done is not None
    assert {path: end.status for path, end in urls.items()} == {
        '/': 'done',
        '/a': 'error',
        '/b': 'done',
    }
    assert f'the fetcher {fetcher!r} {words}' in (urls['/a'].error or '')


def test_a_fetcher_that_hangs_costs_one_page(plugins: Path) -> None:
    with Site({'/': page('/a', '/b'), '/a': page(), '/b': page()}) as site:
        outcome, urls, _ = crawl(plugins, site, fetcher='hanging', timeout_seconds=1, tries=1)
    assert outcome.done is not None
    assert urls['/b'].status == 'done'
    assert urls['/a'].error == "the fetcher 'hanging' did not return within 6 s"


def test_headers_from_a_fetcher_are_found_in_any_case(plugins: Path) -> None:
    with Site({'/': Answer('<title>T</title>', type='text/plain')}) as site:
        _, urls, _ = crawl(plugins, site, fetcher='lower')
    assert page_at(urls, '/').title == 'T'


def test_a_fetcher_that_fails_to_open_fails_the_job_and_one_that_fails_to_close_does_not(
    plugins: Path,
) -> None:
    with Site({'/': page()}) as site:
        outcome, _, _ = crawl(plugins, site, fetcher='shut')
        assert outcome.error_code == 'payload'
        assert "the fetcher 'shut' failed to open: RuntimeError: no key" in (
            outcome.error_message or ''
        )
        outcome, urls, _ = crawl(plugins, site, fetcher='slamming')
        assert outcome.done is not None
        assert urls['/'].status == 'done'


def test_a_job_kind_gets_responses_of_every_content_type(plugins: Path) -> None:
    json = Answer('{"items": [1, 2, 3]}', type='application/json')
    with Site({'/': json, '/two': Answer('x', type='image/png')}) as site:
        _, urls, _ = crawl(plugins, site, kind='sizes')
    assert page_at(urls, '/').title == '20 bytes'
    assert page_at(urls, '/two').title == '1 bytes'
    assert urls.keys() == {'/', '/two'}
    assert page_at(urls, '/').metadata['made_with'] == 'kind=sizes/3 urls=1'


def test_a_job_kind_that_fails_costs_the_pages_it_fails_on(plugins: Path) -> None:
    site_pages = {path: page() for path in ('/', '/a', '/b', '/c')}
    with Site(site_pages) as site:
        outcome, urls, _ = crawl(plugins, site, kind='strange')
    assert page_at(urls, '/').title == 'Good'
    assert urls['/a'].error == (
        "the job kind 'strange' failed: TypeError: title has type int: expected a string"
    )
    assert "the job kind 'strange' failed: AttributeError" in (urls['/b'].error or '')
    assert "the job kind 'strange' failed: CancelledError" in (urls['/c'].error or '')
    assert outcome.done is not None
    assert 'TypeError' in outcome.done.result['result_error']


def test_a_job_kind_reads_pages_in_its_own_way(plugins: Path) -> None:
    with Site({'/': page('/unseen'), '/two': page()}) as site:
        outcome, urls, _ = crawl(plugins, site, kind='titles')
    assert {path: page_at(urls, path).title for path in urls} == {'/': 'At 0', '/two': 'At 1'}
    assert outcome.done is not None
    assert outcome.done.result['seen'] == 2


@pytest.mark.parametrize(
    ('options', 'words'),
    [
        ({'extractor': 'nobody'}, "no extractor 'nobody' is installed"),
        ({'extractor': 'missing'}, "the extractor 'missing' failed to load"),
        ({'fetcher': 'nobody'}, "no fetcher 'nobody' is installed"),
        ({'kind': 'nobody'}, "no job kind 'nobody' is installed"),
        ({'kind': 'nowhere'}, "the job kind 'nowhere' failed: TypeError: starts has type str"),
    ],
)
def test_a_job_that_names_a_missing_plugin_fails_with_a_clear_message(
    plugins: Path, options: dict[str, str], words: str
) -> None:
    with Site({'/': page()}) as site:
        outcome, _, _ = crawl(plugins, site, **options)
    assert outcome.error_code == 'payload'
    assert words in (outcome.error_message or '')
    assert not outcome.is_retryable


def imported_by(statement: str) -> set[str]:
    program = f'import sys\n{statement}\nprint(*sys.modules)'
    done = subprocess.run(
        [sys.executable, '-c', program], check=True, capture_output=True, text=True
    )
    return set(done.stdout.split())


def test_the_public_api_imports_no_network_and_a_crawl_does_not_import_the_api() -> None:
    assert 'aiohttp' not in imported_by('from silkline.plugins import *')
    modules = imported_by('import silkline.crawl.engine.loop, silkline.crawl.documents.reader')
    assert 'silkline.plugins' not in modules
