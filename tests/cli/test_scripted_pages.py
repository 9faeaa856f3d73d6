"""Pages that scripts draw, crawled as a user crawls them: with a browser and without one."""

from collections.abc import Iterator

import pytest

from tests.support.browser import needs_browser
from tests.support.site import Answer, Site, page
from tests.support.stack import StackProcess, own_stack
from tests.support.user import User

ALLOW = ('--allow-network', '127.0.0.0/8')
NO_CHROMIUM = '/no/such/chromium'
SHELL = '<!doctype html><title>app</title><div id="root"></div><script src="{name}.js"></script>'
DRAW = (
    'document.getElementById("root").innerHTML = "<h1>Drawn {name}</h1><p>'
    + 'Words that a script has written. ' * 20
    + '</p>{links}"'
)


def scripted(name: str, *links: str) -> dict[str, Answer]:
    """A page whose text and links exist only once its script has run, and that script."""
    anchors = ''.join(f"<a href='{link}'>{link}</a>" for link in links)
    return {
        f'/{name}': Answer(SHELL.format(name=name)),
        f'/{name}.js': Answer(DRAW.format(name=name, links=anchors), type='text/javascript'),
    }


@pytest.fixture(scope='module')
def site() -> Iterator[Site]:
    pages = {
        '/': page('/plain', '/app'),
        '/plain': page(),
        **scripted('app', '/app2', '/plain'),
        **scripted('app2'),
    }
    with Site(pages) as site:
        yield site


@pytest.fixture(scope='module')
def stack() -> Iterator[StackProcess]:
    with own_stack() as stack:
        yield stack


@pytest.fixture(scope='module')
def user(stack: StackProcess) -> User:
    return User(stack.directory.parent)


@needs_browser
def test_pages_that_scripts_draw_are_rendered_without_being_asked_to(
    user: User, site: Site
) -> None:
    done = user.run('crawl', site.url, *ALLOW)
    rows = {row['url']: row for row in user.lines('pages', '--jsonl')}

    assert {url.removeprefix(site.url) for url in rows} == {'/', '/plain', '/app', '/app2'}
    assert rows[f'{site.url}/app2']['status'] == 'done'
    assert 'needs_browser' not in done.stdout
    assert 'Drawn app2' in user.run('pages', '--jsonl').stdout
    # The pages that need no browser are fetched once.
    assert [request.path for request in site.log].count('/plain') == 1


def test_without_a_browser_they_are_stored_with_a_warning_and_the_remedy(
    user: User, site: Site
) -> None:
    done = user.run(
        'crawl',
        f'{site.url}/app',
        '-o',
        'only_changes=false',
        *ALLOW,
        SILKLINE_CHROMIUM=NO_CHROMIUM,
    )
    warned = user.run('pages', '--warnings')

    assert 'needs_browser' in done.stdout
    assert 'scripts draw the page' in warned.stdout + warned.stderr


@needs_browser
def test_scrape_prints_a_page_that_scripts_draw(user: User, site: Site) -> None:
    drawn = user.run('scrape', f'{site.url}/app2', *ALLOW)
    always = user.run('scrape', f'{site.url}/app2', '-o', 'fetcher=browser', *ALLOW)

    assert '# Drawn app2' in drawn.stdout
    assert drawn.stdout == always.stdout
    assert drawn.stderr == ''


@needs_browser
def test_a_selector_is_waited_for(user: User) -> None:
    late = 'setTimeout(() => document.body.append(Object.assign(document.createElement("p"), '
    late += '{id: "late", textContent: "Here at last. ".repeat(20)})), 2500)'
    shell = f'<!doctype html><title>late</title><div id="root"></div><script>{late}</script>'
    with Site({'/': Answer(shell)}) as site:
        words = ('-o', 'strategy=page', '-o', 'wait_for=#late', *ALLOW, '--export', 'late')
        user.run('crawl', site.url, *words)
    [written] = (user.directory / 'late').rglob('*.md')

    assert 'Here at last.' in written.read_text()


@needs_browser
def test_a_selector_that_is_none_fails_the_page_with_a_sentence(user: User, site: Site) -> None:
    words = ('-o', 'strategy=page', '-o', 'wait_for=#[', '-o', 'only_changes=false', *ALLOW)
    user.run('crawl', f'{site.url}/app', *words, code=4)
    failed = user.run('pages', '--failed')

    assert 'wait_for is not a CSS selector: #[' in failed.stdout
