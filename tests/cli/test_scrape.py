"""`silkline scrape` and `silkline map`: no stack, no project, and nothing left behind."""

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from silkline.linux import processes
from tests.support.site import Answer, Site, page, redirect
from tests.support.user import User
from tests.support.waiting import wait_until

ALLOW = ('--allow-network', '127.0.0.0/8')


@pytest.fixture(scope='module')
def site() -> Iterator[Site]:
    canonical = '<link rel="canonical" href="/a">'
    pages = {
        '/': page('/a', '/moved', '/gone', 'https://elsewhere.example/', title='Top'),
        '/a': page('/docs/b', '/', title='A'),
        '/docs/b': page('/docs/c', '/a', title='B'),
        '/docs/c': page(title='C'),
        '/moved': redirect('/to'),
        '/to': redirect('/a', 302),
        '/copy': Answer(f'<title>Copy</title>{canonical}<main><h1>Copy</h1><p>Text</p></main>'),
        '/busy': Answer(status=429, headers={'Retry-After': '3000'}),
        '/image': Answer(b'\x89PNG\r\n\x1a\n' + bytes(100), type='image/png'),
        '/robots.txt': Answer('User-agent: *\nDisallow: /private/\n', type='text/plain'),
        '/private/': page(title='Private'),
    }
    with Site(pages) as site:
        yield site


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def test_scrape_prints_markdown_and_leaves_nothing(user: User, site: Site) -> None:
    done = user.run('scrape', f'{site.url}/docs/c', *ALLOW)

    assert done.stdout == '# C\n\nA page of words.\n\n'
    assert done.stderr == ''
    assert list(user.directory.iterdir()) == []


def test_scrape_prints_the_page_that_was_asked_for(user: User, site: Site) -> None:
    moved = json.loads(user.run('scrape', f'{site.url}/moved', *ALLOW, '--json').stdout)
    copy = json.loads(user.run('scrape', f'{site.url}/copy', *ALLOW, '--json').stdout)

    assert (moved['asked_url'], moved['url']) == (f'{site.url}/moved', f'{site.url}/a')
    assert (moved['title'], moved['http_status']) == ('A', 200)
    assert moved['links'] == [f'{site.url}/docs/b', f'{site.url}/']
    # It names /a as canonical, but the user asked for this one.
    assert (copy['url'], copy['title']) == (f'{site.url}/copy', 'Copy')


@pytest.mark.parametrize(
    ('path', 'words', 'message'),
    [
        ('/gone', ALLOW, 'HTTP 404 Not Found'),
        ('/private/', ALLOW, 'robots: '),
        ('/image', ALLOW, 'content_type: '),
        ('/busy', ALLOW, 'HTTP 429 Too Many Requests; the next try would be in '),
        ('/', (), 'To allow its network, add --allow-network 127.0.0.0/8'),
    ],
)
def test_a_page_that_cannot_be_had_is_one_message(
    user: User, site: Site, path: str, words: tuple[str, ...], message: str
) -> None:
    done = user.run('scrape', f'{site.url}{path}', *words, code=4)

    assert done.stdout == ''
    assert done.stderr.startswith(f'silkline: {site.url}{path}: ')
    assert message in done.stderr


@pytest.mark.parametrize(
    ('words', 'code', 'message'),
    [
        (['htp://a.example/'], 2, "'htp://a.example/' is not a URL"),
        (
            ['https://a.example/', '-o', 'max_page=1'],
            2,
            "--option: 'max_page' is not an option of this",
        ),
        (['https://a.example/', '-o', 'markdown=no'], 1, 'invalid crawl options: Invalid enum'),
    ],
)
@pytest.mark.parametrize('command', ['scrape', 'map'])
def test_mistakes_are_one_message(
    user: User, command: str, words: list[str], code: int, message: str
) -> None:
    done = user.run(command, *words, code=code)

    assert done.stderr.startswith(f'silkline: {message}')
    assert done.stderr.count('\n') == 1


def test_a_host_without_tls_is_read_over_http(user: User, site: Site) -> None:
    # In capitals it is not taken for this machine, which gets http at once.
    bare = site.url.removeprefix('http://').replace('127.0.0.1', 'LOCALHOST')
    done = user.run('scrape', f'{bare}/a', *ALLOW, '--allow-network', '::1/128')

    assert done.stdout.startswith('# A\n')
    assert f'https://{bare}/a does not answer; using http://{bare}/a' in done.stderr


def test_ctrl_c_ends_scrape_at_once_and_its_process(user: User) -> None:
    async def hang(request: object) -> Answer:
        await asyncio.Event().wait()
        return Answer()

    with Site(answer=hang) as site:
        process = user.start('scrape', site.url, *ALLOW)
        wait_until(lambda: site.log, what='the request')
        runners = {found.pid for found in processes() if found.parent == process.pid}
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)

    assert (process.returncode, output, errors) == (130, '', '')
    assert runners
    assert not runners & {found.pid for found in processes()}


def test_map_lists_the_urls_that_links_lead_to(user: User, site: Site) -> None:
    done = user.run('map', f'{site.url}/', *ALLOW)
    below = json.loads(user.run('map', f'{site.url}/docs/b', *ALLOW, '--json').stdout)
    first = user.run('map', f'{site.url}/', '--pages', '1', *ALLOW).stdout

    # Without redirects, errors, and other hosts.
    assert done.stdout.split() == [
        f'{site.url}{path}' for path in ('/', '/a', '/docs/b', '/docs/c')
    ]
    assert below == [f'{site.url}/docs/b', f'{site.url}/docs/c']
    assert first == f'{site.url}/\n'
    assert list(user.directory.iterdir()) == []


def test_map_lists_the_urls_of_sitemaps(user: User) -> None:
    with Site({'/': page('/b'), '/b': page('/c')}) as site:
        index = '<sitemapindex><sitemap><loc>{}/pages.xml</loc></sitemap></sitemapindex>'
        listed = ''.join(f'<url><loc>{site.url}/{name}</loc></url>' for name in ('a', 'b'))
        site.pages |= {
            '/sitemap.xml': Answer(index.format(site.url), type='application/xml'),
            '/pages.xml': Answer(f'<urlset>{listed}</urlset>', type='application/xml'),
        }
        done = user.run('map', site.url, *ALLOW)
        fetched = {request.path for request in site.log}

    assert done.stdout.split() == [f'{site.url}/', f'{site.url}/b', f'{site.url}/a']
    assert fetched == {'/robots.txt', '/sitemap.xml', '/pages.xml', '/'}


def test_map_of_a_site_that_does_not_answer_is_one_message(user: User) -> None:
    with Site() as site:
        url = site.url
    done = user.run('map', url, *ALLOW, code=4)

    assert done.stdout == ''
    assert f'silkline: {url}/: host_unavailable: could not fetch robots.txt' in done.stderr
