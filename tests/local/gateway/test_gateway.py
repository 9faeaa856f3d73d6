"""The gateway itself: keys, browsers, host names, the dashboard."""

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
    """A gateway with a dashboard, next to a file that it must not serve."""
    built = directory / 'built'
    (built / 'assets').mkdir(parents=True)
    (built / 'index.html').write_text('<title>the page</title>')
    (built / 'assets/index-1a2b.js').write_text('run()')
    (directory / 'secret.txt').write_text('not for you')
    (built / 'link.txt').symlink_to(directory / 'secret.txt')
    with GatewayThread(database, dashboard=built) as gateway:
        yield gateway


def test_each_key_maps_to_its_role(gateway: GatewayThread, database: Database) -> None:
    database.query(
        'create function public.my_role() returns text language sql as $$ select current_user $$'
    )
    user = str(database.user())
    keys = gateway.keys
    bearer = {'apikey': keys.publishable}

    def role(**headers: str) -> object:
        return http.post(f'{gateway.url}/rest/v1/rpc/my_role', headers=headers).json()

    wait_until(lambda: role(apikey=keys.publishable) == 'anon', what='the schema to be reloaded')
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
def test_a_call_without_a_valid_key_is_refused(
    gateway: GatewayThread, key: str, message: str
) -> None:
    headers = [(b'apikey', key.encode())] if key else []
    response = http.post(gateway.url + RPC, headers=headers, json={})

    assert response.status_code == 401
    assert response.json()['message'] == message
    assert response.json()['hint']


def test_a_worker_token_is_not_a_key(gateway: GatewayThread) -> None:
    response = http.post(gateway.url + RPC, headers={'apikey': gateway.keys.crawl_worker}, json={})

    assert response.status_code == 401


def test_a_secret_key_is_refused_from_a_browser(gateway: GatewayThread) -> None:
    headers = {'apikey': gateway.keys.secret, 'User-Agent': 'Mozilla/5.0 (X11; Linux x86_64)'}
    response = http.post(gateway.url + RPC, headers=headers, json={})

    assert response.status_code == 401
    assert 'browser' in response.json()['message']


def test_long_urls_and_tokens_are_accepted_as_on_supabase(
    gateway: GatewayThread, database: Database
) -> None:
    token = gateway.keys.sign({'role': 'service_role', 'groups': ['g' * 9000]})
    ids = ','.join(str(database.user()) for _ in range(300))
    response = http.get(
        f'{gateway.url}/rest/v1/crawl_jobs?select=id&id=in.({ids})',
        headers={'apikey': gateway.keys.publishable, 'Authorization': f'Bearer {token}'},
    )

    assert (response.status_code, response.json()) == (200, [])


def test_pages_of_any_origin_can_call_and_read_responses_and_errors(
    gateway: GatewayThread,
) -> None:
    origin = {'Origin': 'https://app.example'}
    preflight = http.options(
        gateway.url + RPC,
        headers={
            **origin,
            'Access-Control-Request-Method': 'POST',
            'Access-Control-Request-Headers': 'apikey,authorization,content-profile',
        },
    )
    assert preflight.status_code == 200
    assert preflight.headers['Access-Control-Allow-Origin'] == '*'
    assert (
        preflight.headers['Access-Control-Allow-Headers'] == 'apikey,authorization,content-profile'
    )

    headers = {**origin, 'apikey': gateway.keys.service_role}
    for path, status in ((RPC, 200), ('/rest/v1/rpc/nothing', 404), ('/nowhere', 405)):
        response = http.post(gateway.url + path, headers=headers, json={})
        assert response.status_code == status
        assert response.headers['Access-Control-Allow-Origin'] == '*'


def test_foreign_host_names_are_refused(gateway: GatewayThread) -> None:
    headers = {'apikey': gateway.keys.secret}
    for host, status in (
        (f'evil.example:{gateway.port}', 403),
        ('', 403),
        (f'localhost:{gateway.port}', 200),
        ('127.0.0.1', 200),
    ):
        response = http.post(gateway.url + RPC, headers={**headers, 'Host': host}, json={})
        assert response.status_code == status, host


def test_without_a_dashboard_the_start_page_lists_the_services(gateway: GatewayThread) -> None:
    response = http.get(gateway.url)

    assert response.status_code == 200
    assert '/rest/v1' in response.text
    assert http.get(f'{gateway.url}/jobs').status_code == 404


def test_the_dashboard_and_its_routes_are_served(dashboard: GatewayThread) -> None:
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
def test_files_outside_the_dashboard_are_not_served(dashboard: GatewayThread, path: str) -> None:
    response = http.get(dashboard.url + path)

    assert 'not for you' not in response.text
    assert response.status_code == 404 or 'the page' in response.text


def test_config_json_contains_the_publishable_key_and_no_other(dashboard: GatewayThread) -> None:
    response = http.get(f'{dashboard.url}/config.json')

    assert response.json() == {
        'supabase_url': dashboard.url,
        'supabase_publishable_key': dashboard.keys.publishable,
    }


def test_missing_services_say_so_for_every_method(gateway: GatewayThread) -> None:
    for method in ('GET', 'POST', 'DELETE'):
        response = http.request(method, f'{gateway.url}/auth/v1/token')
        assert response.status_code == 404
        assert 'silkline token' in response.json()['message']
        assert http.request(method, f'{gateway.url}/storage/v1/object/x').status_code == 404
