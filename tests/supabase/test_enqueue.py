"""What a call of enqueue_crawl_jobs costs and leaves behind, and which jobs share a host.

What the functions accept, refuse and return is tested in supabase/tests.
"""

import random
import re
from functools import partial
from ipaddress import ip_address
from typing import Any
from uuid import UUID

import pytest

from silkline.crawl.urls import parse
from tests.support.database import Database, call
from tests.support.queue import claim, enqueue, job_row, set_limits, sqlstate

SIZES = """
select sum(pg_relation_size(name)) as bytes
from unnest(
  '{silkline.jobs,silkline.states,silkline.events,silkline.quota_uses}'::regclass[]
) as name
"""


def jobs(count: int, **last: Any) -> list[dict[str, Any]]:
    """Valid jobs, each on its own host; `last` is added to the last one."""
    sent: list[dict[str, Any]] = [
        {'payload': {'url': f'https://site-{number}.example/'}} for number in range(count)
    ]
    sent[-1] |= last
    return sent


@pytest.mark.parametrize(
    ('last', 'code'),
    [
        ({}, 'PT429'),
        ({'payload': {'url': 'https://site.example/', 'tries': 0}}, 'PT422'),
        ({'payload': {'url': 'https://b\u00fccher.example/'}}, 'PT422'),
        ({'idempotency_key': 'used', 'priority': 1}, 'PT409'),
    ],
    ids=['over the quota', 'an invalid option', 'an invalid host', 'a used key'],
)
def test_a_refused_call_of_10000_jobs_writes_nothing(
    database: Database, last: dict[str, Any], code: str
) -> None:
    user = database.user()
    enqueue(database, user=user, p_idempotency_key='used')
    before = database.query(SIZES)

    refused = partial(database.call, 'enqueue_crawl_jobs', user=user, p_jobs=jobs(10_000, **last))

    assert sqlstate(refused) == code
    assert database.query(SIZES) == before


def test_a_call_over_the_daily_quota_writes_nothing(database: Database) -> None:
    user = database.user()
    set_limits(database, max_open_jobs_per_user=None, max_jobs_per_user_per_day=2000)
    enqueue(database, user=user)
    before = database.query(SIZES)

    refused = partial(database.call, 'enqueue_crawl_jobs', user=user, p_jobs=jobs(2000))

    assert sqlstate(refused) == 'PT429'
    assert database.query(SIZES) == before


def test_joining_a_line_does_not_read_the_jobs_of_others(database: Database) -> None:
    database.call('enqueue_crawl_jobs', p_jobs=jobs(3000))
    session = database.connect('authenticated', database.user(), autocommit=False)

    call(session, 'enqueue_crawl_jobs', p_jobs=jobs(10))

    [read] = session.execute(
        """
        select seq_tup_read + idx_tup_fetch as rows
        from pg_stat_xact_all_tables
        where relid = 'silkline.jobs'::regclass
        """
    ).fetchall()
    assert read['rows'] < 100


# Hosts


def test_two_spellings_of_a_host_are_crawled_one_at_a_time(database: Database) -> None:
    for url in ('https://site.example/', 'HTTPS://SITE.example.:0443/x'):
        database.call('enqueue_crawl_job', p_payload={'url': url}, user=database.user())

    assert len(claim(database, 2)) == 1


def test_jobs_of_a_plugin_without_a_url_run_at_the_same_time(database: Database) -> None:
    database.query("update crawl_settings set plugin_kinds = '{mine}' where id")
    for _ in range(2):
        database.call('enqueue_crawl_job', p_payload={}, p_kind='mine')

    assert len(claim(database, 2)) == 2


def make_list(database: Database, user: UUID) -> UUID:
    urls = ['https://a.example/', 'https://b.example/']
    payload = {'strategy': 'list', 'urls': urls}
    return database.call('enqueue_crawl_job', user=user, p_payload=payload)[0]['id']


def test_a_list_of_many_hosts_leaves_its_hosts_to_other_jobs(database: Database) -> None:
    user = database.user()
    make_list(database, user)
    enqueue(database, 'a.example', user=user)
    enqueue(database, 'b.example', user=user)

    assert len(claim(database, 3)) == 3


def test_lists_of_one_user_run_one_at_a_time_and_those_of_two_users_together(
    database: Database,
) -> None:
    ann, bob = database.user(), database.user()
    for user in (ann, ann, bob):
        make_list(database, user)

    leased = [job_row(database, lease.job_id)['user_id'] for lease in claim(database, 3)]

    assert sorted(leased) == sorted([ann, bob])


def test_an_operator_lets_a_user_run_several_lists(database: Database) -> None:
    set_limits(database, max_lists_per_user=2)
    user = database.user()
    for _ in range(3):
        make_list(database, user)

    assert len(claim(database, 3)) == 2


NAMES = (
    *('a', 'www', 'example', 'com', 'EXAMPLE', 'localhost', 'under_score', '-x', 'x-', '', '.'),
    *(
        'xn--bcher-kva',
        'XN--BCHER-KVA',
        'b\u00fccher',
        '\uff45xample',
        'exa\u00admple',
        'ex%61mple',
    ),
    *('0', '1', '01', '127', '256', '2130706433', '0x7f', '0x', '0xg', '192.168.1.1', '1.2.3'),
    *('[::1]', '[::FFFF:1.2.3.4]', '[1::0:0:2]', '[fe80::1%25eth0]', '[1.2.3.4]', '[zz]', 'a b'),
)
PORTS = (
    *('', '', ':80', ':443', ':0443', ':8080', ':0', ':65535', ':65536', ':99999999'),
    ':',
    '@x',
)
PATHS = ('', '/', '/a/b?c#d', '?x', '#y', '/\u00e4', '\\x', '/a\\b', ' /', '/\t')


def browser_host(url: str) -> str | None:
    """The host as the crawler and browsers read it, without the dot of the root."""
    try:
        parsed = parse(url)
    except ValueError:
        return None
    return re.sub(r'[.](:[0-9]+)?\Z', r'\1', parsed.host)


@pytest.mark.parametrize('seed', range(5))
def test_every_accepted_url_has_the_host_that_browsers_read(database: Database, seed: int) -> None:
    rng = random.Random(seed)
    urls = [
        rng.choice(('http', 'https', 'HTTP', 'Https'))
        + '://'
        + '.'.join(rng.choices(NAMES, k=rng.choice((1, 2, 2, 3))))
        + rng.choice(PORTS)
        + rng.choice(PATHS)
        for _ in range(2000)
    ]
    rows = database.query(
        """
        select
          sent.url,
          seen.host,
          seen.error,
          case
            when sent.url ~ silkline.plain_url() then split_part(sent.url, '/', 3)
          end as plain_host
        from unnest(%s::text[]) as sent (url)
        cross join lateral silkline.read_url('url', sent.url) as seen
        """,
        [urls],
    )

    assert sum(row['host'] is not None for row in rows) > 50
    for row in rows:
        host = browser_host(row['url'])
        assert (row['host'] is None) == (row['error'] is not None), row
        assert row['plain_host'] in (None, row['host']), row
        if row['host'] is None or row['host'] == host:
            continue
        # Postgres writes an IPv4 address in an IPv6 address in another way.
        assert host is not None, row
        assert address_of(row['host']) == address_of(host), row


def address_of(host: str) -> object:
    return ip_address(host[1 : host.index(']')])
