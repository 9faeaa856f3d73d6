"""Plugins inside real runners: used where they load, left out where they do not."""

import asyncio
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.support.plugins import install
from tests.support.runner import Frontier, supervise
from tests.support.site import Site, page
from worker import pipe
from worker.outcome import Outcome
from worker.process import PROGRAM, ROOT, Runner

SOURCE = """
from dataclasses import replace

from worker.crawl.plugins import PageDraft, Reading


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
        return Reading(links=links, page=PageDraft(url=response.url, title=f'At {depth}'))

    def result(self):
        return {'seen': self.seen}


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
    'words': 'Words',
    'titles': 'Titles',
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
) -> tuple[Outcome, dict[str, pipe.Finished], list[str]]:
    """Run one real runner that finds the plugins; answers its end, its URLs and its log."""
    frontier = Frontier()
    said: list[str] = []
    start = pipe.Start(
        job_id=uuid4(),
        kind=kind,
        payload={'url': f'{site.url}/', **options},
        allow_networks=['127.0.0.1/32'],
    )
    program = f'import sys; sys.path.append({str(plugins)!r})\n{PROGRAM}'
    command = [sys.executable, '-I', '-c', program, str(ROOT)]

    def watch(runner: Runner, message: pipe.FromRunner) -> None:
        if isinstance(message, pipe.Log):
            said.append(message.message)

    async def run() -> Outcome:
        async with Runner(start, command=command) as runner:
            return await supervise(runner, frontier, watch=watch)

    outcome = asyncio.run(run())
    urls = {
        frontier.urls[key].url.removeprefix(site.url): end for key, end in frontier.ended.items()
    }
    return outcome, urls, said


def page_at(urls: dict[str, pipe.Finished], path: str) -> pipe.Page:
    found = urls[path].page
    assert found is not None
    return found


def test_every_page_passes_the_hooks_and_broken_plugins_are_left_out_and_named(
    plugins: Path,
) -> None:
    with Site({'/': page(text='One two three.')}) as site:
        outcome, urls, said = crawl(plugins, site)
    assert outcome.done is not None
    assert page_at(urls, '/').metadata['words'] > 2
    assert [line.split(':')[0] for line in said] == [
        'plugin future is left out',
        'plugin lame is left out',
        'plugin missing is left out',
    ]


def test_an_extractor_of_a_plugin_makes_the_markdown_under_its_name(plugins: Path) -> None:
    with Site({'/': page(text='Words.')}) as site:
        _, urls, _ = crawl(plugins, site, extractor='upper')
    stored = page_at(urls, '/')
    assert 'WORDS.' in (stored.markdown or '')
    assert (stored.extractor, stored.extractor_version) == ('upper', '7')


def test_an_extractor_that_breaks_loses_no_page_and_no_link(plugins: Path) -> None:
    with Site({'/': page('/a'), '/a': page()}) as site:
        _, urls, _ = crawl(plugins, site, extractor='fragile')
    assert urls.keys() == {'/', '/a'}
    assert 'it broke' in page_at(urls, '/').metadata['extract_error']


def test_a_fetcher_of_a_plugin_goes_through_the_same_egress(plugins: Path) -> None:
    with Site({'/': page()}) as site:
        _, urls, _ = crawl(plugins, site, fetcher='echo')
        assert page_at(urls, '/').title == 'By plugin'
        assert site.asked() == {'/': 1}
    with Site({'/': page()}, address='127.0.0.2') as site:
        _, urls, _ = crawl(plugins, site, fetcher='echo', obey_robots=False)
        assert urls['/'].skip_reason == 'forbidden_address'
        assert site.log == []


def test_a_fetcher_that_breaks_fails_the_page_and_not_the_job(plugins: Path) -> None:
    with Site({'/': page()}) as site:
        outcome, urls, _ = crawl(plugins, site, fetcher='faulty')
    assert outcome.done is not None
    assert urls['/'].error == "the fetcher 'faulty' broke: RuntimeError: no way"


def test_a_kind_of_jobs_reads_pages_its_own_way(plugins: Path) -> None:
    with Site({'/': page('/unseen'), '/two': page()}) as site:
        outcome, urls, _ = crawl(plugins, site, kind='titles')
    assert {path: page_at(urls, path).title for path in urls} == {'/': 'At 0', '/two': 'At 1'}
    assert outcome.done is not None
    assert outcome.done.result['seen'] == 2


@pytest.mark.parametrize(
    ('options', 'words'),
    [
        ({'extractor': 'nobody'}, "no extractor 'nobody' is installed"),
        ({'extractor': 'missing'}, "the extractor 'missing' does not load"),
        ({'fetcher': 'nobody'}, "no fetcher 'nobody' is installed"),
        ({'kind': 'nobody'}, "no job kind 'nobody' is installed"),
    ],
)
def test_a_job_that_names_what_is_not_there_fails_with_a_sentence(
    plugins: Path, options: dict[str, str], words: str
) -> None:
    with Site({'/': page()}) as site:
        outcome, _, _ = crawl(plugins, site, **options)
    assert outcome.error_code == 'payload'
    assert words in (outcome.error_message or '')
    assert not outcome.is_retryable
