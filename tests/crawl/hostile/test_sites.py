"""Malicious sites, crawled by a real runner.

Each case is a site with ten good pages and one malicious URL. Whatever that does, the crawl drains,
the good pages are stored, the malicious URL has its reason, and the runner's memory stays small.
The cases of a group are crawled together by one process, each on its own port.
"""

import functools
import gzip
import os
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import brotli  # pyright: ignore[reportMissingTypeStubs] - it has none
import pytest

from tests.support.hostile import (
    GOOD,
    MEGABYTE,
    Case,
    Crawled,
    End,
    Page,
    crawl_cases,
    failed,
    html_page,
    raw,
    redirect,
    reset,
    skipped,
    web,
)
from tests.support.raw_site import answer, endless, silent, slow

pytestmark = pytest.mark.skipif(sys.platform != 'linux', reason='reads /proc')

HEAD = b'HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n'
OPEN = HEAD + b'\r\n'
CHUNKED = HEAD + b'Transfer-Encoding: chunked\r\n\r\n'
TIMEOUT = failed('127.0.0.1 did not answer within 2 s')
MALFORMED = failed('127.0.0.1 sent a malformed HTTP response')
CLOSED = failed('127.0.0.1 closed the connection')
TOO_LARGE = skipped('too_large')
# The maximum size of a body.
MAX_BYTES = 10 * MEGABYTE


@dataclass(frozen=True)
class CaseGroup:
    """Cases that one runner crawls, and the memory and time it may use."""

    cases: Sequence[Case]
    payload: Mapping[str, Any] = field(default_factory=dict[str, Any])
    megabytes: int = 200
    seconds: float = 60


def one(name: str, page: Page, end: End | None = None) -> Case:
    return Case(name, {'/x': page}, {'/x': end or End()})


# Bodies


def zeros(megabytes: int, *, wbits: int) -> bytes:
    """Zeros compressed to a thousandth of their size; only the checksum is missing."""
    packing = zlib.compressobj(9, wbits=wbits)
    pieces = [
        packing.compress(bytes(MEGABYTE)) + packing.flush(zlib.Z_FULL_FLUSH) for _ in range(2)
    ]
    # After a full flush each piece is independent, and may be repeated.
    return pieces[0] + pieces[1] * (megabytes - 1)


BOMB = zeros(1024, wbits=31)
BODIES = [
    one('a gzip bomb', web(BOMB, Content_Encoding='gzip'), TOO_LARGE),
    one(
        'a gzip bomb in gzip',
        web(gzip.compress(BOMB), Content_Encoding='gzip, gzip'),
        TOO_LARGE,
    ),
    one(
        'a gzip bomb in many members',
        web(gzip.compress(bytes(MEGABYTE)) * 1024, Content_Encoding='gzip'),
        TOO_LARGE,
    ),
    one(
        'gzip members without content',
        web(gzip.compress(b'') * 100_000, Content_Encoding='gzip'),
        failed('more than 4096 parts'),
    ),
    one('a deflate bomb', web(zeros(1024, wbits=15), Content_Encoding='deflate'), TOO_LARGE),
    one(
        'a brotli bomb',
        web(brotli.compress(bytes(100 * MEGABYTE), quality=1), Content_Encoding='br'),
        TOO_LARGE,
    ),
    one(
        'a thousand encodings',
        web(BOMB, Content_Encoding=', '.join(['gzip'] * 1000)),
        failed('more than 2 encodings'),
    ),
    one('an unknown encoding', web(b'x', Content_Encoding='rot13'), failed("'rot13'")),
    one(
        'gzip that turns into noise',
        web(BOMB[:1000] + os.urandom(1000), Content_Encoding='gzip'),
        failed('not valid gzip'),
    ),
    one('gzip that is cut off', web(BOMB[:1000], Content_Encoding='gzip'), failed('is incomplete')),
    one(
        'endless chunks',
        endless(CHUNKED, b'10000\r\n' + b'x' * 65536 + b'\r\n'),
        TOO_LARGE,
    ),
    one('endless bytes', endless(OPEN, b'x' * 65536), TOO_LARGE),
    one('a length of a million terabytes', raw(answer(b'x', length=10**18), stay=True), TOO_LARGE),
]

# Responses that are not HTTP

SMUGGLED = web(b'<title>Smuggled</title>')
ANSWERS = [
    one('more length than body', raw(answer(b'short', length=100)), CLOSED),
    one('less length than body', web(b'<title>First</title>') + SMUGGLED * 20),
    one('endless responses', endless(b'', SMUGGLED * 100)),
    one(
        'a length of many digits',
        raw(HEAD + b'Content-Length: ' + b'9' * 5000 + b'\r\n\r\nx', stay=True),
        MALFORMED,
    ),
    one('a negative length', raw(HEAD + b'Content-Length: -5\r\n\r\nhello'), MALFORMED),
    one(
        'two lengths', raw(HEAD + b'Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello'), MALFORMED
    ),
    one(
        'a length next to chunks',
        raw(CHUNKED.replace(b'\r\n\r\n', b'\r\nContent-Length: 5\r\n\r\n') + b'0\r\n\r\n'),
        skipped('content_type', 200),
    ),
    one('a chunk of any size', raw(CHUNKED + b'f' * 100 + b'\r\nx'), MALFORMED),
    one('endless headers', endless(HEAD, b'X-More: y\r\n' * 1000), MALFORMED),
    one('an endless header line', endless(HEAD + b'X: ', b'x' * 65536), MALFORMED),
    one('an endless status line', endless(b'HTTP/1.1 200 ', b'x' * 65536), MALFORMED),
    one(
        'endless trailers',
        endless(CHUNKED + b'0\r\n', b'X: y\r\n' * 1000),
        replace(MALFORMED, or_error='127.0.0.1 closed the connection in the middle of the body'),
    ),
    one(
        'endless interim responses',
        endless(b'', b'HTTP/1.1 103 Early Hints\r\n\r\n' * 100),
        MALFORMED,
    ),
    one(
        'another protocol',
        raw(b'HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n'),
        failed('switched to another protocol'),
    ),
    one('an entity tag of a megabyte', raw(HEAD + b'ETag: "' + b'e' * MEGABYTE), MALFORMED),
    one('noise', raw(b'\x16\x03' + os.urandom(100_000)), MALFORMED),
    one('zeros', raw(bytes(100_000)), MALFORMED),
    one('an SSH server', raw(b'SSH-2.0-OpenSSH_9.2\r\n', stay=True), MALFORMED),
    one('HTTP/2', raw(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', stay=True), MALFORMED),
    one('HTTP/0.9', raw(b'<title>old</title>\n'), MALFORMED),
    one('nothing', raw(), CLOSED),
    one('a reset', reset(), CLOSED),
]

# Slowness

SLOWNESS = [
    one('silence', silent(), TIMEOUT),
    one('a header byte a second', slow(HEAD + b'X: y\r\n' * 100, seconds_per_byte=1), TIMEOUT),
    one('a slow body', slow(web(b'x' * 9000), seconds_per_byte=0.05), TIMEOUT),
    one('slow chunks', slow(CHUNKED + b'1\r\nx\r\n' * 900, seconds_per_byte=0.05), TIMEOUT),
    one('a body that never reaches its length', raw(answer(b'x', length=100), stay=True), TIMEOUT),
    one('ten million chunks of a byte', endless(CHUNKED, b'1\r\nx\r\n' * 1000), TIMEOUT),
]

# Documents


def document(body: bytes, *, title: bytes = b'T') -> bytes:
    return web(b'<!doctype html><title>%s</title><body>' % title + body)


def filled(piece: bytes, *, size: int = MAX_BYTES - 1000) -> bytes:
    return piece * (size // len(piece))


PLAIN = End(http_status=200)
DOCUMENTS = [
    one('10,000 levels', document(b'<div>' * 10_000 + b'deep words')),
    one('200,000 levels', document(b'<div>' * 200_000 + b'deep' + b'</div>' * 200_000)),
    one('390,000 levels', document(b'<div>' * 390_000 + b'deep')),
    one('2,000,000 levels', document(filled(b'<div>'))),
    one('nested tables', document(filled(b'<table><tr><td>'))),
    one('nested lists', document(filled(b'<ul><li>', size=2 * MEGABYTE))),
    one('five megabytes of <', web(b'<' * 5 * MEGABYTE)),
    one('tags that never end', web(filled(b'<a '))),
    one('comments that never end', document(filled(b'<!--'))),
    one('millions of attributes', document(b'<p ' + filled(b'a=1 ') + b'>words')),
    one(
        'attributes with different names',
        document(b'<p %s>words' % b' '.join(b'a%d=1' % number for number in range(400_000))),
    ),
    one('bold that is never closed', document(filled(b'<b class=x><p>', size=MEGABYTE))),
    one('many <html>', document(b''.join(b'<html a%d=1>' % number for number in range(300_000)))),
    one(
        'cells that span a thousand million columns',
        document(b'<table>' + b'<tr><td colspan=1000000000 rowspan=1000000000>x' * 20_000),
    ),
    one('millions of entities', document(b'<p>' + filled(b'&amp;'))),
    one('a title of ten megabytes', web(b'<title>' + filled(b'title '))),
    one('a canonical of nine megabytes', web(b'<link rel=canonical href="%s">' % filled(b'\x01'))),
    one(
        'a description of nine megabytes',
        web(b'<meta name=description content="%s">' % filled(b'"')),
    ),
    one(
        'text of control characters',
        web(b'word ' * 300 + filled(b'\x01', size=9 * MEGABYTE), type='text/plain'),
    ),
    one(
        'control characters', web(filled(b'\x01'), type='text/plain'), skipped('content_type', 200)
    ),
    one('text of quotes', web(filled(b'"\\'), type='text/plain')),
    one('Markdown of brackets', web(filled(b'[a](b', size=2 * MEGABYTE), type='text/markdown')),
    one(
        'invalid bytes',
        web(filled(b'\x81\xfe\x00'), type='text/html; charset=utf-8'),
    ),
    one('spaces', web(filled(b' ')), skipped('content_type', 200)),
]
# More links than are kept.
MANY_LINKS = 100_000
LINKS = [
    Case(
        '1,000,000 links',
        {'/x': document(b''.join(b'<a href=/l/%x>' % number for number in range(600_000)))},
        {'/x': End()},
        others=lambda path: html_page(title='Linked'),
    ),
    Case(
        '100,000 links',
        {
            '/x': document(
                b''.join(b'<a href=/l/%d>l</a>\n' % number for number in range(MANY_LINKS))
            )
        },
        {'/x': End()},
        others=lambda path: answer(b'gone', status='404 Not Found'),
    ),
    Case(
        'links of a megabyte',
        {'/x': document(b'<a href="/%s">' % (b'y' * MEGABYTE) + b'<a href="?%s">' % (b'y' * 9000))},
        {'/x': End()},
    ),
    Case(
        'links that are not URLs',
        {
            '/x': document(
                b''.join(
                    b'<a href="%s">l</a>' % href
                    for href in (
                        b'javascript:alert(1)',
                        b'data:text/html,x',
                        b'file:///etc/passwd',
                        b'mailto:a@b.example',
                        b'gopher://a.example/',
                        b'http://',
                        b'http://[::1',
                        b'http://user:secret@127.0.0.1/',
                        b'//user@127.0.0.1/',
                        b'http://a b/',
                        b'http://1.2.3.4.5/',
                        b'http://x:99999/',
                        b'http://' + b'a' * 400 + b'.example/',
                    )
                )
            )
        },
        {'/x': End()},
    ),
]

# Redirects

REDIRECTS = [
    one('to itself', redirect('/x'), failed('redirect loop', 302)),
    Case(
        'to itself, written differently',
        {'/x': redirect('/x?utm_source=1'), '/x?utm_source=1': redirect('/x?utm_source=2')},
        {'/x': failed('redirect loop', 302)},
        others=lambda path: redirect('/x'),
    ),
    Case(
        'to each other',
        {'/a': redirect('/b'), '/b': redirect('/a')},
        {'/a': skipped('redirect', 302), '/b': failed('redirect loop', 302)},
        links=['/a'],
    ),
    Case(
        'thirty in a row',
        {f'/{number}': redirect(f'/{number + 1}', '301 Moved') for number in range(30)},
        {'/0': skipped('redirect', 301), '/10': failed('more than 10 redirects', 301)},
        links=['/0'],
    ),
    Case(
        'endless',
        {},
        {'/n/0': skipped('redirect'), '/n/10': failed('more than 10 redirects')},
        others=lambda path: redirect(f'/n/{int(path[3:]) + 1}') if path[:3] == '/n/' else None,
        links=['/n/0'],
    ),
    one('to a script', redirect('javascript:alert(1)'), failed("cannot follow 'javascript:")),
    one('to a file', redirect('file:///etc/passwd'), failed("cannot follow 'file:///etc/passwd'")),
    one(
        'to a mail address',
        redirect('mailto:a@b.example'),
        failed("cannot follow 'mailto:a@b.example'"),
    ),
    one('with a password', redirect('http://a:b@127.0.0.1/'), failed('cannot follow')),
    one('to a megabyte', redirect('/' + 'y' * MEGABYTE), MALFORMED),
    one('to ten kilobytes', redirect('/' + 'y' * 10_000), failed('cannot follow')),
    one('without a target', answer(status='301 Moved'), failed('without a Location header', 301)),
    Case(
        'to invalid bytes',
        {'/x': redirect(b'/caf\xe9\xff')},
        {'/x': skipped('redirect'), '/caf%C3%A9%C3%BF': failed('HTTP 404')},
        links=['/x'],
    ),
    one('by a page that refreshes itself', document(b'<meta http-equiv=refresh content="0;/x">x')),
    one('not modified, without a condition', answer(status='304 Not Modified'), failed('HTTP 304')),
    one('with choices', answer(b'x', status='300 Multiple Choices'), failed('HTTP 300')),
]

GROUPS = {
    'bodies': CaseGroup(BODIES, {'concurrency': 8}),
    'answers': CaseGroup(ANSWERS, {'concurrency': 8}),
    'slowness': CaseGroup(SLOWNESS, {'timeout_seconds': 2}),
    # The parser needs up to 25 times the size of a page; one page at a time is read.
    # The parser needs up to 33 bytes for each of ten million characters; seven bodies wait for it.
    'documents': CaseGroup(DOCUMENTS, {'concurrency': 8, 'timeout_seconds': 30}, megabytes=500),
    'links': CaseGroup(LINKS, {'concurrency': 8, 'timeout_seconds': 30}),
    'redirects': CaseGroup(REDIRECTS),
}


@functools.cache
def crawled(group: str) -> Crawled:
    """The crawl of a group, shared by all of its cases."""
    return crawl_cases(GROUPS[group].cases, payload=GROUPS[group].payload)


@pytest.mark.parametrize('group', GROUPS)
def test_a_crawl_of_malicious_sites_drains_in_bounded_memory_and_time(group: str) -> None:
    crawled(group).assert_drained(
        within_bytes=GROUPS[group].megabytes * MEGABYTE, within_seconds=GROUPS[group].seconds
    )


@pytest.mark.parametrize(
    ('group', 'case'),
    [
        pytest.param(name, case, id=f'{name}: {case.name}')
        for name, group in GROUPS.items()
        for case in group.cases
    ],
)
def test_a_malicious_url_ends_with_its_reason_and_costs_no_other_page(
    group: str, case: Case
) -> None:
    site = crawled(group).sites[case.name]
    site.assert_ends(case.ends)
    site.assert_good()


def test_data_after_a_response_is_not_taken_for_another_response() -> None:
    for name in ('less length than body', 'endless responses'):
        site = crawled('answers').sites[name]
        titles = {
            path: finished.page and finished.page.title for path, finished in site.finished.items()
        }
        assert {titles[path] for path in GOOD} == {f'Good {path}' for path in GOOD}
    assert crawled('answers').sites['less length than body'].page('/x').title == 'First'


def test_the_number_of_links_followed_from_a_page_is_bounded() -> None:
    site = crawled('links').sites['100,000 links']
    followed = [path for path in site.found if path.startswith('/l/')]
    assert 1000 <= len(followed) <= 5000
    assert len(site.page('/x').links) == len(followed)
    assert all(site.finished[path].http_status == 404 for path in followed)


def test_links_that_are_too_long_or_not_http_are_ignored() -> None:
    for name in ('links of a megabyte', 'links that are not URLs'):
        site = crawled('links').sites[name]
        assert set(site.found) == {'/', '/x', *GOOD}
        assert site.page('/x').links == []
    assert not crawled('links').other_urls


def test_the_markdown_of_a_deeply_nested_page_has_its_words() -> None:
    sites = crawled('documents').sites
    for name in ('10,000 levels', '200,000 levels', '390,000 levels'):
        assert 'deep' in (sites[name].page('/x').markdown or ''), name
