"""What the gateway does before REST or Realtime: keys, browsers, host names, the dashboard."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.database import Database
from tests.support.gateway import GatewayThread
from tests.support.http import http
from tests.support.waiting import wait_until

RPC = '/rest/v1/rpc/pending_crawl_work'


@pytest.fixture
def dashboard(database: Database, directory: Path) -> Iterator[GatewayThread]:
    """A gateway that has a dashboard to show, beside a file that is none of its business."""
    built = directory / 'built'
    (built / 'assets').mkdir(parents=True)
    (built / 'index.html').write_text('<title>the page</title>')
    (built / 'assets/index-1a2b.js').write_text('run()')
    (directory / 'secret.txt').write_text('not for you')
    (built / 'link.txt').symlink_to(directory / 'secret.txt')
    with GatewayThread(database, dashboard=built) as gateway:
        yield gateway


def test_each_key_stands_for_its_role(gateway: GatewayThread, database: Database) -> None:
    database.query(
        'create function public.my_role() returns text language sql as $$ select current_user $$'
    )
    user = str(database.user())
    keys = gateway.keys
    bearer = {'apikey': keys.publishable}

    def role(**headers: str) -> object:
        return http.post(f'{gateway.url}/rest/v1/rpc/my_role', headers=headers).json()

    wait_until(lambda: role(apikey=keys.publishable) == 'anon', what='the function to be known')
    assert role(apikey=keys.anon) == 'anon'
    assert role(apikey=keys.secret) == 'service_role'
    assert role(apikey=keys.service_role) == 'service_role'
    assert role(apikey=keys.secret, Authorization=f'Bearer {keys.secret}') == 'service_role'
    assert role(**bearer, Authorization=f'Bearer {keys.user_token(user)}') == 'authenticated'
    assert role(**bearer, Authorization=f'Bearer {keys.service_role}') == 'service_role'


@pytest.mark.parametrize(
    ('key', 'message'),
    [
        ('', 'No API key found in request'),
        ('sb_secret_guessed', 'Invalid API key'),
        ('é', 'Invalid API key'),
    ],
)
def test_a_call_without_a_right_key_is_refused(
    gateway: GatewayThread, key: str, message: str
) -> None:
    headers = [(b'apikey', key.encode())] if key else []
    answer = http.post(gateway.url + RPC, headers=headers, json={})

    assert answer.status_code == 401
    assert answer.json()['message'] == message
    assert answer.json()['hint']


def test_a_worker_token_is_no_key(gateway: GatewayThread) -> None:
    answer = http.post(gateway.url + RPC, headers={'apikey': gateway.keys.crawl_worker}, json={})

    assert answer.status_code == 401


def test_a_secret_key_is_refused_from_a_browser(gateway: GatewayThread) -> None:
    headers = {'apikey': gateway.keys.secret, 'User-Agent': 'Mozilla/5.0 (X11; Linux x86_64)'}
    answer = http.post(gateway.url + RPC, headers=headers, json={})

    assert answer.status_code == 401
    assert 'browser' in answer.json()['message']


def test_urls_and_tokens_may_be_as_long_as_on_supabase(
    gateway: GatewayThread, database: Database
) -> None:
    token = gateway.keys.sign({'role': 'service_role', 'groups': ['g' * 9000]})
    ids = ','.join(str(database.user()) for _ in range(300))
    answer = http.get(
        f'{gateway.url}/rest/v1/crawl_jobs?select=id&id=in.({ids})',
        headers={'apikey': gateway.keys.publishable, 'Authorization': f'Bearer {token}'},
    )

    assert (answer.status_code, answer.json()) == (200, [])


def test_a_page_of_any_origin_may_ask_and_may_read_answers_and_errors(
    gateway: GatewayThread,
) -> None:
    origin = {'Origin': 'https://app.example'}
    asked = http.options(
        gateway.url + RPC,
        headers={
            **origin,
            'Access-Control-Request-Method': 'POST',
            'Access-Control-Request-Headers': 'apikey,authorization,content-profile',
        },
    )
    assert asked.status_code == 200
    assert asked.headers['Access-Control-Allow-Origin'] == '*'
    assert asked.headers['Access-Control-Allow-Headers'] == 'apikey,authorization,content-profile'

    headers = {**origin, 'apikey': gateway.keys.service_role}
    for path, status in ((RPC, 200), ('/rest/v1/rpc/nothing', 404), ('/nowhere', 405)):
        answer = http.post(gateway.url + path, headers=headers, json={})
        assert answer.status_code == status
        assert answer.headers['Access-Control-Allow-Origin'] == '*'


def test_a_name_that_a_website_points_here_is_refused(gateway: GatewayThread) -> None:
    headers = {'apikey': gateway.keys.secret}
    for host, status in (
        (f'evil.example:{gateway.port}', 403),
        ('', 403),
        (f'localhost:{gateway.port}', 200),
        ('127.0.0.1', 200),
    ):
        answer = http.post(gateway.url + RPC, headers={**headers, 'Host': host}, json={})
        assert answer.status_code == status, host


def test_without_a_dashboard_the_page_says_what_is_here(gateway: GatewayThread) -> None:
    answer = http.get(gateway.url)

    assert answer.status_code == 200
    assert '/rest/v1' in answer.text
    assert http.get(f'{gateway.url}/jobs').status_code == 404


def test_the_dashboard_is_served_with_its_pages(dashboard: GatewayThread) -> None:
    page = http.get(dashboard.url)
    script = http.get(f'{dashboard.url}/assets/index-1a2b.js')

    assert 'the page' in page.text
    assert page.headers['Content-Type'].startswith('text/html')
    assert page.headers['Cache-Control'] == 'no-cache'
    assert 'the page' in http.get(f'{dashboard.url}/jobs/1234').text
    assert script.text == 'run()'
    assert 'javascript' in script.headers['Content-Type']
    assert 'immutable' in script.headers['Cache-Control']


@pytest.mark.parametrize(
    'path',
    [
        '/assets/missing.js',
        '/../secret.txt',
        '/%2e%2e/secret.txt',
        '/..%2fsecret.txt',
        '/link.txt',
        '/rest/v2/x',
        '/auth/v1/token',
        '/a%00b',
        f'/{"a" * 5000}',
    ],
)
def test_what_is_no_file_of_the_dashboard_is_not_found(dashboard: GatewayThread, path: str) -> None:
    answer = http.get(dashboard.url + path)

    assert 'not for you' not in answer.text
    assert answer.status_code == 404 or 'the page' in answer.text


def test_a_page_learns_the_publishable_key_and_no_other(dashboard: GatewayThread) -> None:
    answer = http.get(f'{dashboard.url}/config.json')

    assert answer.json() == {
        'supabase_url': dashboard.url,
        'supabase_publishable_key': dashboard.keys.publishable,
    }


def test_services_that_are_not_there_say_so_to_every_method(gateway: GatewayThread) -> None:
    for method in ('GET', 'POST', 'DELETE'):
        answer = http.request(method, f'{gateway.url}/auth/v1/token')
        assert answer.status_code == 404
        assert 'silkline token' in answer.json()['message']
        assert http.request(method, f'{gateway.url}/storage/v1/object/x').status_code == 404
