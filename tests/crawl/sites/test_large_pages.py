"""Pages of millions of characters arrive whole, through the real worker, API and database."""

from typing import Any

import pytest

from tests.support.crawls import crawl, pages
from tests.support.site import Answer, Site
from tests.support.worker import Queue

# About four million characters in eight thousand sections.
SECTIONS = 8000
SENTENCE = 'Each section has some words that no other section has, and ends with its number. '


def manual() -> str:
    sections = ''.join(
        f'<h2>Section {number}</h2><p>{SENTENCE * 5}It is number {number}.</p>'
        f'<pre><code>run {number}\n</code></pre>'
        for number in range(SECTIONS)
    )
    return f'<!doctype html><title>Manual</title><main><h1>Manual</h1>{sections}</main>'


def stored(queue: Queue, job: str, site: Site, path: str) -> dict[str, Any]:
    """The page as it is in the database, and as the API returns it, which must be the same."""
    row = pages(queue, job, site)[path]
    answer = queue.stack.rpc('crawl_job_pages', p_job_id=job, p_with_content=True)
    [returned] = [page for page in answer if page['url'] == site.url + path]
    assert returned['markdown'] == row['markdown']
    assert returned['quality'] == row['quality']
    return row


def test_a_manual_of_four_million_characters_is_stored_whole(queue: Queue) -> None:
    with Site({'/': Answer(manual())}) as site:
        job = crawl(queue, site, strategy='page')
        row = stored(queue, job, site, '/')
    assert len(row['markdown']) > 3_600_000
    assert row['markdown'].count('\n## Section ') == SECTIONS
    assert f'It is number {SECTIONS - 1}.' in row['markdown']
    assert f'run {SECTIONS - 1}\n' in row['markdown']
    assert 'cut' not in queue.progress(job)['page_warnings']


@pytest.mark.parametrize('character', ['x', 'あ', '\u001b'], ids=['ascii', 'kana', 'escape'])
def test_the_longest_text_that_a_job_may_ask_for_is_stored(queue: Queue, character: str) -> None:
    line = f'{"word " * 9}{character * 53}\n'
    text = f'{line * 102_000}END'
    with Site({'/': Answer(text, type='text/plain; charset=utf-8')}) as site:
        job = crawl(
            queue,
            site,
            strategy='page',
            max_page_bytes=100_000_000,
            max_markdown_chars=10_000_000,
        )
        row = stored(queue, job, site, '/')
    assert row['markdown'] == text[:10_000_000]
    assert row['quality']['is_cut'] is True
    assert queue.progress(job)['page_warnings'] == {'cut': 1}
