"""Sites that fail, are slow, rate-limit, or never end."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise

import httpx
import pytest
from aiohttp import web

from tests.support.crawls import crawl, ends, enqueue, pages, robots
from tests.support.site import Answer, Site, page
from tests.support.waiting import wait_until
from tests.support.worker import Queue


def failing(status: int, headers: Mapping[str, str] = {}) -> Answer:
    return Answer('<title>Sorry</title>', status=status, headers=headers)


def test_a_site_where_every_page_fails_ends_as_completed_with_failures(queue: Queue) -> None:
    with Site({'/': page(*(f'/{n}' for n in range(40)))}) as site:
        for number in range(40):
            site.pages[f'/{number}'] = failing(500)
        job = crawl(queue, site)
        reasons = ends(queue, job, site)
        assert reasons.pop('/') == 'done'
        assert len(reasons) == 40
        assert all('HTTP 500 Internal Server Error' in error for error in reasons.values())
        assert max(site.request_counts().values()) <= 3
        progress = queue.progress(job)
        assert (progress['status'], progress['pages_failed']) == ('completed', 40)


def test_a_start_url_that_refuses_connections_ends_as_completed_with_its_error(
    queue: Queue,
) -> None:
    with Site() as site:
        pass
    job = crawl(queue, site, obey_robots=False)
    [error] = ends(queue, job, site).values()
    assert error == 'could not connect to 127.0.0.1'
    assert queue.progress(job)['pages_failed'] == 1


def test_a_host_that_resets_every_connection_is_given_up_with_the_reason(queue: Queue) -> None:
    async def answer(request: web.Request) -> Answer:
        if request.path == '/':
            return page(*(f'/{number}' for number in range(60)))
        assert request.transport is not None
        request.transport.abort()
        return Answer()

    with Site({'/robots.txt': robots()}, answer=answer) as site:
        job = crawl(queue, site)
        reasons = ends(queue, job, site)
        assert reasons.pop('/') == 'done'
        assert len(reasons) == 60
        assert all('closed' in error or 'gave up' in error for error in reasons.values())
        assert queue.progress(job)['pages_failed'] == 60
        # Given up, not requested three times each.
        assert sum(site.request_counts().values()) < 60


def test_a_page_that_fails_at_first_is_retried(queue: Queue) -> None:
    tries: dict[str, int] = {}

    async def answer(request: web.Request) -> Answer:
        tries[request.path] = tries.get(request.path, 0) + 1
        if request.path == '/busy' and tries['/busy'] == 1:
            return failing(429, {'Retry-After': '1'})
        if request.path == '/flaky' and tries['/flaky'] < 3:
            return failing(502)
        return page('/flaky', '/busy')

    with Site({'/robots.txt': robots()}, answer=answer) as site:
        job = crawl(queue, site)
        assert ends(queue, job, site) == {'/': 'done', '/flaky': 'done', '/busy': 'done'}
        times = [asked.at for asked in site.log if asked.path == '/busy']
        assert times[1] - times[0] >= 1


def test_a_site_that_rate_limits_everything_is_given_up(queue: Queue) -> None:
    with Site({'/': page('/a', '/b'), '/a': failing(503), '/b': failing(503)}) as site:
        job = crawl(queue, site)
        reasons = ends(queue, job, site)
        assert all('HTTP 503' in reasons[path] for path in ('/a', '/b'))


@pytest.mark.parametrize('count', [1, 700])
def test_a_job_gives_its_slot_back_during_a_long_backoff(queue: Queue, count: int) -> None:
    async def answer(request: web.Request) -> Answer:
        if request.path == '/':
            return page(*(f'/{number}' for number in range(count)))
        return failing(429, {'Retry-After': '1800'})

    with Site({'/robots.txt': robots()}, answer=answer) as site:
        job = enqueue(queue, site)
        wait_until(
            lambda: (row := queue.job(job))['attempt'] == 1 and row['status'] == 'pending',
            what='the job back in line',
        )
        assert queue.job(job)['retry_count'] == 0
        [wait] = queue.rows(
            'select extract(epoch from run_after - now())::float as seconds from silkline.jobs'
            ' where id = %s',
            [job],
        )
        assert 1500 < wait['seconds'] <= 1800
        assert pages(queue, job, site).keys() == {'/'}


def test_requests_are_separated_by_the_crawl_delay(queue: Queue) -> None:
    site_pages = {'/': page('/a', '/b'), '/a': page(), '/b': page()}
    with Site({**site_pages, '/robots.txt': robots('Crawl-delay: 1')}) as site:
        crawl(queue, site)
        times = [asked.at for asked in site.log if asked.path != '/robots.txt']
        assert len(times) == 3
        # They are sent a second apart; on a busy machine the first may arrive late.
        assert all(later - earlier >= 0.5 for earlier, later in pairwise(times))


def test_robots_txt_is_fetched_once_for_all_jobs(queue: Queue) -> None:
    with Site({'/': page(), '/robots.txt': robots()}) as site:
        crawl(queue, site)
        crawl(queue, site)
        assert sum(asked.path == '/robots.txt' for asked in site.log) == 1


def test_no_page_is_fetched_if_robots_txt_cannot_be_fetched(queue: Queue) -> None:
    with Site({'/': page(), '/robots.txt': failing(500)}) as site:
        job = crawl(queue, site)
        assert ends(queue, job, site) == {'/': 'host_unavailable'}
        assert site.request_counts() == {}
        assert sum(asked.path == '/robots.txt' for asked in site.log) == 3
        job = crawl(queue, site, obey_robots=False)
        assert ends(queue, job, site) == {'/': 'done'}


def test_a_network_that_the_operator_did_not_allow_is_not_reached(queue: Queue) -> None:
    with Site({'/': page()}, address='127.0.0.2') as site:
        job = crawl(queue, site)
        assert ends(queue, job, site) == {'/': 'forbidden_address'}
        assert site.log == []


def test_a_slow_host_does_not_delay_others_in_a_list(queue: Queue) -> None:
    with (
        Site({'/robots.txt': robots('Crawl-delay: 60')}) as slow,
        Site({'/robots.txt': robots()}, address='127.0.0.3') as fast,
    ):
        urls: list[str] = []
        for site in (slow, fast):
            for number in range(40):
                site.pages[f'/{number}'] = page(text=f'Words {number}.')
                urls.append(f'{site.url}/{number}')
        job = enqueue(queue, slow, strategy='list', urls=urls, concurrency=4)
        wait_until(
            lambda: len(fast.request_counts()) == 40 and slow.request_counts(),
            seconds=50,
            what='the pages of the fast host',
        )
        assert len(slow.request_counts()) == 1
        queue.control(job, 'cancel')


def test_the_same_page_under_endless_urls_is_a_trap(queue: Queue) -> None:
    async def answer(request: web.Request) -> Answer:
        number = int(request.query.get('page', 0))
        return page('/?page=1') if not number else page(*(f'/?page={n}' for n in range(1, 500)))

    with Site({'/robots.txt': robots()}, answer=answer) as site:
        job = crawl(queue, site)
        reasons = Counter(ends(queue, job, site).values())
        assert reasons['done'] < 60
        assert reasons['trap'] > 400


def test_listed_urls_are_fetched_even_if_they_all_have_the_same_content(queue: Queue) -> None:
    async def answer(request: web.Request) -> Answer:
        return page(text='Always the same.')

    with Site({'/robots.txt': robots()}, answer=answer) as site:
        urls = [f'{site.url}/?id={number}' for number in range(40)]
        job = crawl(queue, site, strategy='list', urls=urls)
        assert len(pages(queue, job, site)) == 40


def test_rate_limiting_does_not_use_up_the_tries_of_a_page(queue: Queue) -> None:
    answers = [failing(429), failing(429), failing(500), page()]

    async def answer(request: web.Request) -> Answer:
        return answers.pop(0) if request.path == '/a' else page('/a')

    with Site({'/robots.txt': robots()}, answer=answer) as site:
        job = crawl(queue, site)
        assert ends(queue, job, site) == {'/': 'done', '/a': 'done'}


def test_a_site_that_always_rate_limits_is_given_up_over_all_attempts(
    queue: Queue,
) -> None:
    site_pages = {'/': page(*(f'/{n}' for n in range(20))), '/robots.txt': robots()}
    for number in range(20):
        site_pages[f'/{number}'] = failing(429, {'Retry-After': '600'})
    with Site(site_pages) as site:
        job = enqueue(queue, site, concurrency=1)
        for attempt in range(1, 10):
            wait_until(
                lambda attempt=attempt: (
                    queue.status(job) == 'completed'
                    or (queue.job(job)['attempt'] == attempt and queue.status(job) == 'pending')
                ),
                what='the end of an attempt',
            )
            if queue.status(job) == 'completed':
                break
            let_time_pass(queue, job, site)
        reasons = ends(queue, job, site)
        assert reasons.pop('/') == 'done'
        assert all('HTTP 429' in error for error in reasons.values())
        assert queue.job(job)['attempt'] == 4


def let_time_pass(queue: Queue, job: str, site: Site) -> None:
    """End the waiting time of a job and of its host."""
    host = site.url.removeprefix('http://')
    for query, key in (
        ('update crawl_hosts set backoff_until = now() where host = %s', host),
        (
            'update silkline.tasks set next_run_at = now()'
            " where job_id = %s and status = 'pending'",
            job,
        ),
        ('update silkline.jobs set run_after = now() where id = %s', job),
    ):
        queue.stack.execute(query, [key])


def test_the_running_time_of_a_job_is_summed_over_its_pauses(queue: Queue) -> None:
    chain = {f'/{n}': page(f'/{n + 1}', text=f'Words {n}.') for n in range(200)}
    with Site({'/': page('/0'), **chain}) as site:
        job = enqueue(queue, site, delay_seconds=0.2, max_seconds=6, max_depth=100)
        for seen in (8, 16):
            wait_until(
                lambda seen=seen: (
                    len(site.request_counts()) >= seen or queue.status(job) == 'failed'
                ),
                what=f'{seen} pages',
            )
            # On a busy machine its time may end at any moment.
            with suppress(httpx.HTTPStatusError):
                queue.control(job, 'pause')
                wait_until(lambda: not queue.progress(job)['is_saving'], what='the pause')
                queue.control(job, 'resume')
        queue.wait_for('failed', job)
        assert queue.job(job)['error_code'] == 'timeout'
        # 6 s of 5 pages each; a job that counts from zero after each pause fetches 46.
        assert len(site.request_counts()) <= 35


def test_urls_of_a_host_that_was_given_up_cost_nothing_of_the_page_budget(queue: Queue) -> None:
    with Site() as dead:
        pass
    with Site({'/robots.txt': robots()}, address='127.0.0.3') as alive:
        for number in range(20):
            alive.pages[f'/{number}'] = page(text=f'Words {number}.')
        urls = [f'{site.url}/{n}' for n in range(20) for site in (dead, alive)]
        job = crawl(queue, alive, strategy='list', urls=urls, max_pages=30, tries=1)
        assert len(pages(queue, job, alive)) == 20


def test_a_host_with_a_crawl_delay_does_not_starve_others_of_its_domain(queue: Queue) -> None:
    with Site() as slow, Site() as fast:
        slow.pages['/robots.txt'] = robots('Crawl-delay: 20')
        links = [f'/{n}' for n in range(300)] + [f'{fast.url}/{n}' for n in range(10)]
        slow.pages['/'] = page(*links)
        for number in range(10):
            fast.pages[f'/{number}'] = page(text=f'Words {number}.')
        job = enqueue(queue, slow, scope='domain')
        wait_until(lambda: len(fast.request_counts()) == 10, what='the pages of the fast host')
        assert len(slow.request_counts()) <= 4
        queue.control(job, 'cancel')


def test_the_delay_also_separates_the_jobs_of_a_host(queue: Queue) -> None:
    with Site({'/': page(), '/robots.txt': robots('Crawl-delay: 2')}) as site:
        crawl(queue, site)
        crawl(queue, site)
        first, second = (asked.at for asked in site.log if asked.path == '/')
        assert second - first >= 1


def test_a_recrawl_of_many_hosts_with_long_robots_txt_fetches_all_of_them(queue: Queue) -> None:
    rules = robots('Allow: /', *(f'Disallow: /{"x" * 1000}{n}' for n in range(450)))
    with Site({'/': page(), '/robots.txt': rules}) as site:
        urls = [f'http://127.0.0.1:{site.port}/']
        crawl(queue, site, strategy='list', urls=urls)
        queue.stack.execute(
            'insert into crawl_hosts (host, robots_txt, robots_status, robots_fetched_at)'
            " select format('127.0.1.%%s', n), robots_txt, 200, now()"
            ' from crawl_hosts, generate_series(1, 60) as n where host = %s',
            [f'127.0.0.1:{site.port}'],
        )
        many = [*urls, *(f'http://127.0.1.{n}/' for n in range(1, 61))]
        job = crawl(queue, site, strategy='list', urls=many, tries=1)
        assert ends(queue, job, site)['/'] == 'done'
