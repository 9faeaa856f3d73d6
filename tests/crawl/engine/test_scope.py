"""Which links are followed, for each kind of scope, with patterns, and after redirects."""

import subprocess
import sys
import time

import pytest

from silkline.crawl.engine.scope import Scope, ScopeKind, directory_of
from silkline.crawl.options import HostPolicy
from silkline.protocol import SkipReason


def judge(
    url: str,
    start: str = 'https://www.example.com/docs/intro',
    *,
    kind: ScopeKind = 'host',
    include: list[str] | None = None,
    exclude: list[str] | None = None,
) -> SkipReason | None:
    return Scope([start], kind=kind, include=include or [], exclude=exclude or []).judge(url)


@pytest.mark.parametrize(
    'url',
    [
        'https://www.example.com/',
        'https://example.com/anything?x=1',
        'http://example.com/',
        'http://www.example.com/',
        'https://example.com./',
    ],
)
def test_a_host_is_the_same_with_and_without_www_and_tls(url: str) -> None:
    assert judge(url) is None
    assert judge(url, 'http://example.com/') is None


@pytest.mark.parametrize(
    'url',
    [
        'https://docs.example.com/',
        'https://example.com:8443/',
        'https://example.com.evil.org/',
        'https://evilexample.com/',
        'https://evil.org/www.example.com/',
        'https://evil.org/?https://www.example.com/',
        'https://www.www.example.com/',
    ],
)
def test_another_host_is_out_of_scope(url: str) -> None:
    assert judge(url) == 'out_of_scope'


def test_a_port_is_part_of_the_host() -> None:
    start = 'http://localhost:8000/'
    assert judge('http://localhost:8000/a', start) is None
    assert judge('http://localhost:8001/a', start) == 'out_of_scope'
    assert judge('http://localhost/a', start) == 'out_of_scope'


def test_www_is_dropped_only_from_names_with_another_dot() -> None:
    assert judge('https://com/', 'https://www.com/') == 'out_of_scope'
    assert judge('https://www.com/a', 'https://www.com/') is None


DOMAINS: list[tuple[str, str, SkipReason | None]] = [
    ('https://www.example.com/', 'https://docs.example.com/', None),
    ('https://www.example.com/', 'http://example.com:8080/', None),
    ('https://docs.example.com/', 'https://a.b.c.example.com/', None),
    ('https://www.example.com/', 'https://example.org/', 'out_of_scope'),
    ('https://www.example.com/', 'https://notexample.com/', 'out_of_scope'),
    ('https://shop.example.co.uk/', 'https://www.example.co.uk/', None),
    ('https://shop.example.co.uk/', 'https://www.other.co.uk/', 'out_of_scope'),
    # Another owner: anyone may register below such a suffix.
    ('https://one.github.io/', 'https://two.github.io/', 'out_of_scope'),
    ('https://one.github.io/', 'https://one.github.io/x', None),
    ('https://github.io/', 'https://github.io/x', None),
    ('https://github.io/', 'https://one.github.io/', 'out_of_scope'),
    ('https://xn--mller-kva.de/', 'https://www.xn--mller-kva.de/', None),
    ('http://wiki.corp.internal/', 'http://git.corp.internal/', None),
    ('http://127.0.0.1:8000/', 'http://127.0.0.1:9000/', None),
    ('http://127.0.0.1/', 'http://10.0.0.1/', 'out_of_scope'),
    ('http://[::1]/', 'http://[::1]:8000/', None),
    ('http://[::1]/', 'http://[::2]/', 'out_of_scope'),
    ('http://localhost:8000/', 'http://localhost:9000/', None),
    ('http://localhost/', 'http://otherhost/', 'out_of_scope'),
]


@pytest.mark.parametrize(('start', 'url', 'reason'), DOMAINS)
def test_a_domain_is_what_was_registered_below_a_public_suffix(
    start: str, url: str, reason: SkipReason | None
) -> None:
    assert judge(url, start, kind='domain') == reason


DIRECTORIES = [
    ('https://example.com/docs/', '/docs/'),
    ('https://example.com/docs/intro', '/docs/'),
    ('https://example.com/docs/index.html?x#y', '/docs/'),
    ('https://example.com/docs/v2/', '/docs/v2/'),
    ('https://example.com/docs', '/docs'),
    ('https://example.com/index.html', '/'),
    ('https://example.com/', '/'),
    ('https://example.com/?q', '/'),
]


@pytest.mark.parametrize(('start', 'directory'), DIRECTORIES)
def test_the_directory_of_a_start(start: str, directory: str) -> None:
    assert directory_of(start) == directory


PREFIXES: list[tuple[str, str, SkipReason | None]] = [
    ('https://example.com/docs/intro', 'https://example.com/docs/', None),
    ('https://example.com/docs/intro', 'https://example.com/docs', None),
    ('https://example.com/docs/intro', 'https://example.com/docs?x', None),
    ('https://example.com/docs/intro', 'http://www.example.com/docs/a/b', None),
    ('https://example.com/docs/intro', 'https://example.com/docs-old/', 'out_of_scope'),
    ('https://example.com/docs/intro', 'https://example.com/Docs/', 'out_of_scope'),
    ('https://example.com/docs/intro', 'https://example.com/', 'out_of_scope'),
    ('https://example.com/docs/intro', 'https://example.com/?/docs/', 'out_of_scope'),
    ('https://example.com/docs/intro', 'https://other.com/docs/', 'out_of_scope'),
    ('https://example.com/docs', 'https://example.com/docs', None),
    ('https://example.com/docs', 'https://example.com/docs?x', None),
    ('https://example.com/docs', 'https://example.com/docs/a', None),
    ('https://example.com/docs', 'https://example.com/docs.html', 'out_of_scope'),
    ('https://example.com/docs', 'https://example.com/docs-old', 'out_of_scope'),
    ('https://example.com/index.html', 'https://example.com/any/thing', None),
]


@pytest.mark.parametrize(('start', 'url', 'reason'), PREFIXES)
def test_a_prefix_is_the_directory_of_the_start(
    start: str, url: str, reason: SkipReason | None
) -> None:
    assert judge(url, start, kind='prefix') == reason


def test_every_start_url_extends_the_scope() -> None:
    scope = Scope(
        ['https://a.com/x/', 'https://b.org/y/', 'https://a.com/z/'],
        kind='prefix',
        include=[],
        exclude=[],
    )
    assert scope.judge('https://a.com/x/1') is None
    assert scope.judge('https://a.com/z/1') is None
    assert scope.judge('https://b.org/y/1') is None
    assert scope.judge('https://a.com/y/1') == 'out_of_scope'
    assert scope.judge('https://b.org/x/1') == 'out_of_scope'


@pytest.mark.parametrize('kind', ['host', 'domain', 'prefix'])
def test_the_target_of_a_redirected_start_extends_the_scope(kind: ScopeKind) -> None:
    scope = Scope(['https://old.example/'], kind=kind, include=[], exclude=[])
    assert scope.judge('https://new.example/docs/a') == 'out_of_scope'
    scope.extend('https://new.example/docs/')
    assert scope.judge('https://new.example/docs/a') is None
    assert scope.judge('https://old.example/a') is None


def test_a_start_url_is_always_in_scope() -> None:
    starts = [
        'https://Example.com/calendar?year=2099&month=1#x',
        'https://example.com/a.pdf',
        'https://example.com',
    ]
    scope = Scope(starts, kind='host', include=['/only/'], exclude=[r'\.pdf'])
    assert scope.judge('https://example.com/calendar?year=2099&month=1') is None
    assert scope.judge('https://example.com/a.pdf') is None
    assert scope.judge('https://example.com/') is None
    assert scope.judge('https://example.com/b.pdf') == 'excluded'


def test_patterns_match_anywhere_in_the_url() -> None:
    start = 'https://example.com/'
    assert judge('https://example.com/docs/a', start, include=['/docs/']) is None
    assert judge('https://example.com/blog/a', start, include=['/docs/']) == 'excluded'
    assert judge('https://example.com/blog/a', start, include=['/docs/', 'blog']) is None
    assert judge('https://example.com/a.pdf', start, exclude=[r'\.pdf$']) == 'excluded'
    assert judge('https://example.com/a.pdf?x', start, exclude=[r'\.pdf$']) is None
    assert judge('https://example.com/A', start, exclude=['(?i)/a$']) == 'excluded'
    assert judge('https://example.com/B', start, exclude=['(?i)/a$', '/b$']) is None
    assert judge('https://example.com/docs/x', start, include=['docs'], exclude=['x']) == 'excluded'
    assert judge('https://example.com/c|d', start, exclude=['^x|y$']) is None


def test_the_first_reason_in_order_is_given() -> None:
    start = 'https://example.com/'
    assert judge('https://other.com/up/up/up/', start, exclude=['up']) == 'out_of_scope'
    assert judge('https://example.com/up/up/up/', start, exclude=['up']) == 'excluded'
    assert judge('https://example.com/up/up/up/', start) == 'trap'


def test_hosts_that_the_policy_refuses_are_out_of_every_scope() -> None:
    policy = HostPolicy(deny_hosts=['private.example.com'])
    scope = Scope(['https://www.example.com/'], kind='domain', policy=policy)
    assert scope.judge('https://docs.example.com/') is None
    assert scope.judge('https://private.example.com/') == 'out_of_scope'
    assert scope.judge('https://a.private.example.com:8443/') == 'out_of_scope'
    assert scope.judge('https://private.example.com./') == 'out_of_scope'


def test_a_start_and_its_redirects_are_out_of_scope_if_the_policy_refuses_their_host() -> None:
    policy = HostPolicy(allow_hosts=['example.com'])
    scope = Scope(['https://other.org/', 'https://example.com/'], kind='host', policy=policy)
    scope.extend('https://moved.org/')
    assert scope.judge('https://other.org/') == 'out_of_scope'
    assert scope.judge('https://moved.org/') == 'out_of_scope'
    assert scope.judge('https://www.example.com/a') is None


BAD_PATTERNS = [
    ('(docs', 'missing )'),
    ('[a-', 'missing ]'),
    ('*', 'no argument for repetition operator'),
    ('(?=docs)', 'does not support lookaround'),
    (r'(a)\1', 'invalid escape sequence'),
    ('a{5000}', 'invalid repetition size'),
    ('x' * 1001, 'longer than 1000 characters'),
    ('\ud800', 'surrogates'),
]


@pytest.mark.parametrize(('pattern', 'why'), BAD_PATTERNS)
def test_an_invalid_pattern_is_named_with_its_error(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match='pattern') as caught:
        Scope(['https://example.com/'], kind='host', include=[], exclude=['fine', pattern])
    message = str(caught.value)
    assert message.startswith('exclude pattern ')
    assert repr(pattern[:40])[:-1] in message
    assert why in message


def test_a_malicious_pattern_takes_linear_time() -> None:
    scope = Scope(
        ['https://example.com/'],
        kind='host',
        include=[],
        exclude=['(a+)+$', '(a|a)*b', '(a|aa)+$', '(.*.*.*.*.*)*x$'] * 25,
    )
    url = 'https://example.com/' + 'a' * 1900 + '/y'
    started = time.process_time()
    for _ in range(20):
        assert scope.judge(url) is None
    assert time.process_time() - started < 5


def test_urls_with_repeated_content_become_traps() -> None:
    scope = Scope(['https://example.com/'], kind='host', include=[], exclude=[])
    for page in range(20):
        assert scope.judge(f'https://example.com/list?page={page}') is None
        scope.record_content(f'https://example.com/list?page={page}', 'nothing here')
    assert scope.judge('https://example.com/list?page=20') == 'trap'
    assert scope.judge('https://example.com/item?id=20') is None


def test_the_number_of_remembered_hosts_is_bounded() -> None:
    scope = Scope(['https://example.com/'], kind='host', include=[], exclude=[])
    for number in range(5_000):
        assert scope.judge(f'https://{number}.example.org/') == 'out_of_scope'
    assert len(scope.known_sites) <= 2_000


def test_re2_and_the_public_suffixes_are_loaded_only_when_needed() -> None:
    code = (
        'import sys; from silkline.crawl.engine.scope import Scope;'
        "Scope(['https://a.com/'], kind='host', include=[], exclude=[]).judge('https://b.com/');"
        "print(sorted({'re2', 'publicsuffixlist'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == '[]'
