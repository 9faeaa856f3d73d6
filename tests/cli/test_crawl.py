"""`silkline crawl`: from a URL to its pages, run as a user runs it."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from examples.demo.demo_site import DemoSite
from silkline.linux import processes
from tests.support.plugins import python_with_generated_site
from tests.support.site import Site, page
from tests.support.stack import StackProcess, own_stack
from tests.support.user import User
from tests.support.waiting import wait_until
from tests.support.worker import WorkerProcess

ALLOW = ('--allow-network', '127.0.0.0/8')
GENERATED = ('-o', 'fetcher=generated', '-o', 'obey_robots=false')
# Twenty seconds at eight pages at a time: still running when it is stopped.
LONG_SITE = 'https://long.example/?pages=1600&links=40&delay_ms=100'


@pytest.fixture(scope='module')
def site() -> Iterator[DemoSite]:
    with DemoSite() as site:
        yield site


@pytest.fixture(scope='module')
def stack() -> Iterator[StackProcess]:
    with own_stack() as stack:
        yield stack


@pytest.fixture(scope='module')
def user(stack: StackProcess) -> User:
    """In a directory with a running stack."""
    return User(stack.directory.parent, python=python_with_generated_site())


def job_id_in(text: str) -> str:
    found = re.search(r'job ([0-9a-f-]{36})', text)
    assert found, text
    return found[1]


def test_a_crawl_in_an_empty_directory_starts_stack_and_worker(directory: Path) -> None:
    user = User(directory, python=python_with_generated_site())
    words = ('crawl', 'https://fresh.example/?pages=12', *GENERATED, '--export', 'out')
    try:
        done = user.run(*words)
        again = user.run(*words)

        assert re.match(r'completed in \d+\.\d s \(.* pages/s\): 12 pages, ', done.stdout)
        assert '  stored   12 new\n' in done.stdout
        assert 'silkline down stops it' in done.stderr
        assert 'the local stack' in done.stderr
        assert 'out: 12 new' in done.stderr
        assert len(list((directory / 'out').rglob('*.md'))) == 12
        # The stack is still running, with the pages in it.
        assert 'starting the stack' not in again.stderr
        assert '  stored   12 unchanged\n' in again.stdout
        assert 'out: 12 unchanged' in again.stderr
        listed = user.run('pages', job_id_in(done.stderr)).stdout
        assert listed.count('https://fresh.example/') == 12
    finally:
        user.run('down')


def test_a_site_with_broken_and_forbidden_pages_is_crawled(user: User, site: DemoSite) -> None:
    done = user.run('crawl', f'{site.url}/', *ALLOW, '--export', 'manual')
    skipped = user.run('pages', job_id_in(done.stderr), '--skipped').stdout
    why = user.run('why', job_id_in(done.stderr), 'https://www.example.org/').stdout
    sensors = (user.directory / 'manual/guide/sensors/index.md').read_text()

    assert '14 pages' in done.stdout
    assert '  failed   1 HTTP 404\n' in done.stdout
    assert re.search(r'  refused  \d+ links? outside the scope of the job\n', done.stdout)
    assert '/drafts/api-v2/' not in site.requests
    assert re.search(r'/drafts/api-v2/ +robots: ', skipped)
    assert re.search(r'/files/poster\.pdf +200 +content_type: ', skipped)
    assert re.search(r'/guide/old-sensors/ +301 +redirect: ', skipped)
    assert re.search(r'/team/ +200 +noindex: ', skipped)
    assert 'https://www.example.org/' not in skipped
    assert why == f'out_of_scope: the crawl stays on host {site.url.removeprefix("http://")}\n'
    assert '| `radar` | water level, from above |' in sensors
    assert '  zero_m = -0.42      # the gauge board' in sensors
    assert '潮位計の手引き' in (user.directory / 'manual/ja/index.md').read_text()


def test_only_an_edited_page_is_reported_as_changed(user: User) -> None:
    with DemoSite() as site:
        words = ('crawl', f'{site.url}/', *ALLOW, '--export', 'edited')
        user.run(*words)
        site.edit()
        again = user.run(*words)

    assert '  stored   1 changed, 13 unchanged\n' in again.stdout
    assert 'edited: 1 changed, 13 unchanged' in again.stderr
    assert 'Wind in knots' in (user.directory / 'edited/changelog/index.md').read_text()


def test_the_sitemap_strategy_finds_pages_without_links_to_them(user: User, site: DemoSite) -> None:
    words = ('-o', 'strategy=sitemap', '--export', 'sitemap')
    user.run('crawl', f'{site.url}/', *ALLOW, *words)

    assert (user.directory / 'sitemap/legal/index.md').exists()
    assert not (user.directory / 'sitemap/drafts').exists()


def test_an_address_of_this_machine_is_refused_with_the_option_that_allows_it(
    user: User, site: DemoSite
) -> None:
    asked = len(site.requests)
    done = user.run('crawl', f'{site.url}/', code=4)

    assert '  skipped  1 forbidden_address\n' in done.stdout
    assert 'To allow its network, add --allow-network 127.0.0.0/8' in done.stdout
    assert len(site.requests) == asked


def test_a_missing_start_url_is_reported(user: User, site: DemoSite) -> None:
    done = user.run('crawl', f'{site.url}/nowhere', *ALLOW, code=4)

    assert f'Nothing was stored: {site.url}/nowhere: HTTP 404' in done.stdout


def test_a_start_url_that_robots_txt_disallows_is_reported_with_advice(
    user: User, site: DemoSite
) -> None:
    done = user.run('crawl', f'{site.url}/drafts/api-v2/', *ALLOW, code=4)

    assert 'disallowed by robots.txt' in done.stdout
    assert '-o obey_robots=false' in done.stdout


def test_no_more_pages_are_fetched_than_asked_for(user: User) -> None:
    done = user.run('crawl', 'https://capped.example/?pages=50', *GENERATED, '--pages', '5')

    assert ': 5 pages,' in done.stdout
    assert re.search(r'skipped  \d+ budget.*\n +\(budget: --pages was reached', done.stdout)


@pytest.mark.parametrize(
    ('typed', 'url'),
    [
        ('bare.example/?pages=1', 'https://bare.example/?pages=1'),
        ('127.0.0.1:9/?pages=1', 'http://127.0.0.1:9/?pages=1'),
        ('localhost/?pages=1', 'http://localhost/?pages=1'),
    ],
)
def test_a_url_without_a_scheme_gets_one(user: User, typed: str, url: str) -> None:
    done = user.run('crawl', typed, *GENERATED)

    assert f'silkline: using {url}\n' in done.stderr
    assert ': 1 page,' in done.stdout


@pytest.mark.parametrize(
    ('words', 'code', 'message'),
    [
        (['https://a.example/', '-o', 'max_page=3'], 1, '"max_page"'),
        (['javascript:alert(1)'], 2, "'javascript:alert(1)' is not a URL"),
        (['https://a.example/', '-o', 'nonsense'], 2, 'KEY=VALUE'),
        (['https://a.example/', '--allow-network', 'lan'], 2, 'something like 127.0.0.0/8'),
        (['https://a.example/', '--export', '.'], 2, 'contains other files'),
    ],
)
def test_a_mistake_in_the_command_enqueues_nothing(
    user: User, words: list[str], code: int, message: str
) -> None:
    before = user.lines('jobs', '--json')
    done = user.run('crawl', *words, code=code)

    assert message in done.stderr
    assert user.lines('jobs', '--json') == before


@pytest.mark.parametrize(
    'words',
    [
        ['htp://a.example/'],
        ['https://a.example/', '-o', 'nonsense'],
        ['https://a.example/', '--allow-network', 'lan'],
        ['https://a.example/', '--export', '.'],
        ['https://a.example/', '--export', 'notes.txt/pages'],
    ],
)
def test_a_mistake_in_the_command_starts_no_stack(directory: Path, words: list[str]) -> None:
    (directory / 'notes.txt').write_text('mine')
    User(directory).run('crawl', *words, code=2)

    assert [path.name for path in directory.iterdir()] == ['notes.txt']


def test_the_export_of_another_site_is_refused_before_the_crawl(user: User) -> None:
    user.run('crawl', 'https://mine.example/?pages=1', *GENERATED, '--export', 'taken')
    before = user.lines('jobs', '--json')
    done = user.run('crawl', 'https://other.example/', *GENERATED, '--export', 'taken', code=2)

    assert 'contains the pages of mine.example, not of other.example' in done.stderr
    assert user.lines('jobs', '--json') == before
    # The same site, written differently.
    user.run('crawl', 'https://MINE.example:443/?pages=1', *GENERATED, '--export', 'taken')


def test_the_project_of_the_environment_is_used_and_printed(
    directory: Path, stack: StackProcess
) -> None:
    user = User(directory, python=python_with_generated_site(), **project_of(stack))
    done = user.run('crawl', 'https://remote.example/?pages=3', *GENERATED)

    assert f'on {stack.url}, the project of SUPABASE_URL' in done.stderr
    assert ': 3 pages,' in done.stdout
    assert not (directory / '.silkline').exists()


def test_no_worker_is_started_for_a_project_that_has_workers(directory: Path) -> None:
    with StackProcess(directory / 'far/away') as stack:
        stack.rpc('heartbeat_crawl_jobs', p_worker_id=str(uuid4()), p_lease_tokens=[])
        process = User(directory, **project_of(stack)).start('crawl', 'https://remote.example/')
        assert process.stderr is not None
        assert any('the workers of the project are busy' in line for line in process.stderr)
        os.kill(process.pid, signal.SIGINT)
        output = process.communicate(timeout=100)[0]

        assert process.returncode == 130
        assert output.startswith('stopped: 0 pages')


def project_of(stack: StackProcess) -> dict[str, str]:
    """The variables of a remote project."""
    names = ('SUPABASE_URL', 'SUPABASE_SECRET_KEY')
    return {name: stack.variables[name] for name in names}


def test_a_running_worker_takes_the_job(user: User, directory: Path) -> None:
    with (
        StackProcess(directory / '.silkline') as stack,
        WorkerProcess(stack, directory, python=python_with_generated_site()) as worker,
    ):
        worker.wait_for_output('4 slots')
        done = User(directory).run('crawl', 'https://shared.example/?pages=3', *GENERATED)
        worker.wait_for_output(f'job {job_id_in(done.stderr)}: ')

        assert ': 3 pages,' in done.stdout
        assert not worker.has_ended


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_crawl_is_stopped_and_keeps_its_pages(
    user: User, number: signal.Signals
) -> None:
    process = user.start('crawl', f'{LONG_SITE}&n={number}', *GENERATED, *ALLOW)
    job, children = wait_for_pages(process)
    os.kill(process.pid, number)
    output = process.communicate(timeout=100)[0]

    assert process.returncode == 130
    assert output.startswith('stopped in ')
    assert re.search(r'^  left     \d+ URLs?$', output, re.MULTILINE)
    # With the network that the crawl was allowed, which the next worker needs, too.
    assert output.endswith(
        f'To resume:\n  silkline resume {job}\n  silkline worker --burst {" ".join(ALLOW)}\n'
    )
    assert user.run('jobs', '--status', 'stopped').stdout.count(job) == 1
    assert len(user.lines('pages', job, '--jsonl')) >= 1
    assert not children & running()


def test_a_crawl_whose_worker_is_killed_continues_with_another_worker(user: User) -> None:
    pages = {f'/{number}': page(text=f'Page {number}.') for number in range(1, 30)}
    with Site({'/': page(*pages), **pages}) as site:
        # Still running when the worker is killed.
        site.answer_only(10)
        process = user.start('crawl', f'{site.url}/', *ALLOW)
        job, [worker] = wait_for_pages(process)
        os.kill(worker, signal.SIGKILL)
        site.answer_all()
        output, messages = process.communicate(timeout=100)

    assert process.returncode == 0, messages
    assert 'the worker was killed; starting another one' in messages
    assert ': 30 pages,' in output
    assert len(user.lines('pages', job, '--jsonl')) == 30


def test_a_second_interrupt_ends_a_crawl_at_once(user: User) -> None:
    # All but the first page take longer than the test.
    process = user.start('crawl', f'{LONG_SITE}&slow=1&slow_ms=300000', *GENERATED)
    job, children = wait_for_pages(process)
    os.kill(process.pid, signal.SIGINT)
    assert process.stderr is not None
    assert any('Ctrl-C again exits at once' in line for line in process.stderr)
    os.kill(process.pid, signal.SIGINT)
    messages = process.communicate(timeout=60)[1]

    assert process.returncode == 130
    assert f'exited at once; silkline show {job}' in messages
    wait_until(lambda: not children & running(), what='the worker to exit')


def test_an_interrupt_during_the_export_ends_the_command_at_once(user: User) -> None:
    words = ('crawl', 'https://written.example/?pages=1', *GENERATED, '--export', 'written')
    user.run(*words)
    page = user.directory / 'written/index_pages=1.md'
    page.unlink()
    # Writing to a pipe that nobody reads blocks for ever.
    os.mkfifo(f'{page}.partial')
    process = user.start(*words)
    assert process.stdout is not None
    assert any(line.startswith('To list them:') for line in process.stdout)
    os.kill(process.pid, signal.SIGINT)
    messages = process.communicate(timeout=60)[1]

    assert process.returncode == 130
    assert 'Traceback' not in messages


def wait_for_pages(process: subprocess.Popen[str]) -> tuple[str, set[int]]:
    """Read messages of a crawl until it has pages; return its job and its child processes."""
    assert process.stderr is not None
    messages = ''
    for line in process.stderr:
        messages += line
        if re.match(r'processing  [1-9]', line):
            break
    children = {found.pid for found in processes() if found.parent == process.pid}
    assert children, messages
    return job_id_in(messages), children


def running() -> set[int]:
    return {found.pid for found in processes() if not found.is_zombie}
