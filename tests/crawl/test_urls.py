"""Joining links, the canonical form, keys, hosts, ports and the cached joiner."""

import hashlib
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from silkline.crawl.urls import (
    BAD_PORTS,
    MAX_URL_LENGTH,
    TRACKING_PARAMETERS,
    Joiner,
    canonical,
    host_of,
    join,
    key_of,
    with_ascii_host,
)

BASE = 'https://docs.example.com/guide/intro/index.html?lang=en#top'

JOINS: list[tuple[str, str | None]] = [
    ('page.html', 'https://docs.example.com/guide/intro/page.html'),
    ('../x', 'https://docs.example.com/guide/x'),
    ('../../../../x', 'https://docs.example.com/x'),
    ('./', 'https://docs.example.com/guide/intro/'),
    ('/a/./b/../c', 'https://docs.example.com/a/c'),
    ('?q=1', 'https://docs.example.com/guide/intro/index.html?q=1'),
    ('#part', 'https://docs.example.com/guide/intro/index.html?lang=en'),
    ('', 'https://docs.example.com/guide/intro/index.html?lang=en'),
    ('//other.example.org/p', 'https://other.example.org/p'),
    ('http://other.example.org', 'http://other.example.org/'),
    ('HTTP://OTHER.Example.ORG:80/Path', 'http://other.example.org/Path'),
    ('https://x.org:8443/a', 'https://x.org:8443/a'),
    ('  \n/spaced\t ', 'https://docs.example.com/spaced'),
    ('/a\nb', 'https://docs.example.com/ab'),
    ('\\\\x.org\\p', 'https://x.org/p'),
    ('https:page.html', 'https://docs.example.com/guide/intro/page.html'),
    ('http:page.html', 'http://page.html/'),
    ('/a b?c d', 'https://docs.example.com/a%20b?c%20d'),
    ('/ü?ö=ß', 'https://docs.example.com/%C3%BC?%C3%B6=%C3%9F'),
    ('https://müller.de/', 'https://xn--mller-kva.de/'),
    ('http://0x7f.1/', 'http://127.0.0.1/'),
    ('http://[::1]:8080/', 'http://[::1]:8080/'),
    # The wire form keeps the query unchanged, with tracking parameters and in its order.
    ('/p?b=2&a=1&utm_source=x#f', 'https://docs.example.com/p?b=2&a=1&utm_source=x'),
    ('/p?', 'https://docs.example.com/p?'),
    ('mailto:someone@example.com', None),
    ('javascript:void(0)', None),
    ('JavaScript:alert(1)', None),
    ('data:text/html,x', None),
    ('tel:+49', None),
    ('ftp://example.com/x', None),
    ('file:///etc/passwd', None),
    ('blob:https://example.com/x', None),
    ('https://user:secret@example.com/', None),
    ('https://user@example.com/', None),
    ('http://', None),
    ('http://[::1', None),
    ('http://a b/', None),
    ('http://example.com:99999/', None),
    ('http://ex\x00ample.com/', None),
    ('http://' + 'a' * 300 + '.com/', None),
    ('/\ud800', None),
    ('/' + 'a' * MAX_URL_LENGTH, None),
    ('/' + 'a' * 1_000_000, None),
]


@pytest.mark.parametrize(('href', 'url'), JOINS)
def test_a_link_is_joined_as_browsers_do(href: str, url: str | None) -> None:
    assert join(BASE, href) == url


@pytest.mark.parametrize('base', ['', 'nonsense', 'http://[', '/path', '\ud800'])
def test_a_base_that_is_not_a_url_joins_to_nothing(base: str) -> None:
    assert join(base, 'x') is None
    assert Joiner().links(base, ['x', '/y', 'https://example.com/']) == []


def test_a_url_may_have_the_maximum_length() -> None:
    path = 'a' * (MAX_URL_LENGTH - len('https://docs.example.com/'))
    joined = join(BASE, f'/{path}')
    assert joined is not None
    assert len(joined) == MAX_URL_LENGTH
    assert join(BASE, f'/{path}a') is None


SAME_PAGE: list[tuple[str, str]] = [
    ('HTTP://Example.COM/', 'http://example.com/'),
    ('http://example.com', 'http://example.com/'),
    ('http://example.com:80/', 'http://example.com/'),
    ('https://example.com:443/', 'https://example.com/'),
    ('https://example.com./a', 'https://example.com/a'),
    ('https://example.com.:8443/a', 'https://example.com:8443/a'),
    ('https://example.com/a#b', 'https://example.com/a'),
    ('https://example.com/a?', 'https://example.com/a'),
    ('https://example.com/a?&', 'https://example.com/a'),
    ('https://example.com/%7euser', 'https://example.com/~user'),
    ('https://example.com/%c3%bc', 'https://example.com/%C3%BC'),
    ('https://example.com/ü', 'https://example.com/%C3%BC'),
    ('https://example.com/a%2fb', 'https://example.com/a%2Fb'),
    ('https://example.com/100%', 'https://example.com/100%25'),
    ('https://example.com/%%34%31', 'https://example.com/%2541'),
    ('https://example.com/a/../b', 'https://example.com/b'),
    ('https://example.com/?b=2&a=1', 'https://example.com/?a=1&b=2'),
    ('https://example.com/?a=2&b=0&a=1', 'https://example.com/?a=2&a=1&b=0'),
    ('https://example.com/?utm_source=x&utm_medium=y', 'https://example.com/'),
    ('https://example.com/?UTM_Source=x&id=1', 'https://example.com/?id=1'),
    ('https://example.com/?id=1&gclid=abc&fbclid=d', 'https://example.com/?id=1'),
    ('https://example.com/?msclkid=1&mc_cid=2&mc_eid=3', 'https://example.com/'),
    ('https://example.com/?PHPSESSID=abc123&p=1', 'https://example.com/?p=1'),
    ('https://example.com/?sid=0123456789abcdef0123456789abcdef', 'https://example.com/'),
    ('https://example.com/a;jsessionid=1A2B?x=1', 'https://example.com/a?x=1'),
    ('https://example.com/a;%6Asessionid=1A2B/b', 'https://example.com/a/b'),
    ('https://example.com/..;jsessionid=1', 'https://example.com/'),
    ('https://example.com/(S(lit3py55t21z5v55vlm25s55))/p', 'https://example.com/p'),
]


@pytest.mark.parametrize(('url', 'same'), SAME_PAGE)
def test_urls_of_one_page_have_one_canonical_form(url: str, same: str) -> None:
    assert canonical(url) == same
    assert key_of(url) == key_of(same)


DIFFERENT_PAGES = [
    ('https://example.com/Path', 'https://example.com/path'),
    ('https://example.com/a', 'https://example.com/a/'),
    ('https://example.com/', 'https://www.example.com/'),
    ('https://example.com/', 'http://example.com/'),
    ('https://example.com/', 'https://example.com:8443/'),
    ('https://example.com/a/b', 'https://example.com/a%2Fb'),
    ('https://example.com/?a=1', 'https://example.com/?A=1'),
    ('https://example.com/?a=1&a=2', 'https://example.com/?a=2&a=1'),
    ('https://example.com/?a', 'https://example.com/?a='),
    ('https://example.com/?a=1%262', 'https://example.com/?a=1&2'),
    ('https://example.com/?ref=a', 'https://example.com/?ref=b'),
    ('https://example.com/?sid=12', 'https://example.com/?sid=13'),
    ('https://example.com/?s=shoes', 'https://example.com/?s=boots'),
    ('https://example.com/a;v=1', 'https://example.com/a;v=2'),
    ('https://example.com/?q=%2B', 'https://example.com/?q=+'),
]


@pytest.mark.parametrize(('one', 'other'), DIFFERENT_PAGES)
def test_urls_that_may_differ_have_different_keys(one: str, other: str) -> None:
    assert key_of(one) != key_of(other)


@pytest.mark.parametrize(
    'url', ['', 'example.com', 'mailto:a@b.c', 'http://[', 'ftp://a/', '\ud800']
)
def test_only_http_and_https_urls_have_a_key(url: str) -> None:
    with pytest.raises(ValueError, match='not an http or https URL'):
        key_of(url)


def test_the_key_is_a_hash_of_the_canonical_form() -> None:
    digest = hashlib.blake2b(b'https://example.com/?a=1', digest_size=16).digest()
    assert key_of('https://EXAMPLE.com/?utm_id=4&a=1') == UUID(bytes=digest)


# Properties

TEXTS = st.text(max_size=30) | st.text(alphabet='/.%;?&=#aA0(){}:@\\ ~+2eéj', max_size=40)


def address(host: str, path: str, query: str) -> str:
    return f'https://{host}/{path}?{query}'


URLS = st.builds(
    address,
    st.sampled_from(['example.com', 'WWW.Example.COM.', 'a.b:8080', '[::1]', '127.1']),
    TEXTS,
    TEXTS
    | st.lists(
        st.tuples(st.sampled_from(['a', 'b', 'utm_x', 'sid', 'A', '%61', '']), TEXTS), max_size=5
    ).map(lambda pairs: '&'.join(f'{name}={value}' for name, value in pairs)),
)


@given(URLS)
@example('https://example.com/..;jsessionid=1/..;sid=2')
@example('https://example.com/a;sid=%2E%2E/;jsessionid=')
@example('https://example.com/?%75tm_x=1&&=&=a')
def test_the_canonical_form_of_a_canonical_form_is_the_same(url: str) -> None:
    try:
        once = canonical(url)
    except ValueError:
        return
    assert canonical(once) == once


@given(TEXTS)
def test_a_joined_link_is_absolute_bounded_and_joins_to_itself(href: str) -> None:
    url = join(BASE, href)
    if url is None:
        return
    parts = urlsplit(url)
    assert parts.scheme in ('http', 'https')
    assert parts.hostname
    assert '#' not in url
    assert '@' not in parts.netloc
    assert len(url) <= MAX_URL_LENGTH
    assert url.isascii()
    assert not any(character <= ' ' for character in url)
    assert join('https://docs.example.com/', url) == url
    assert join('https://other.example/', url) == url


@given(st.permutations(['a=1', 'b=2', 'c=3', 'utm_campaign=4', 'd']))
def test_the_order_of_different_parameters_does_not_matter(parameters: list[str]) -> None:
    assert canonical(f'https://example.com/?{"&".join(parameters)}') == (
        'https://example.com/?a=1&b=2&c=3&d'
    )


@given(URLS, st.text(max_size=10), st.sampled_from(sorted(TRACKING_PARAMETERS)))
def test_fragments_and_tracking_parameters_do_not_matter(
    url: str, fragment: str, name: str
) -> None:
    page = join(url, '')
    if page is not None and '?' in page:
        assert canonical(f'{page}&{name}=x#{fragment}') == canonical(page)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    'https://a.example/x/y.html',
                    'https://a.example/x/z?q#f',
                    'https://a.example/',
                    'https://a.example',
                    'http://b.example/x/y.html?a=/b/c',
                    'http://b.example:81/x/',
                    'http://b.example/x/?',
                    'http://user@b.example/x/',
                    'mailto:a@b.example',
                    'https://a.example/' + 'a' * MAX_URL_LENGTH,
                ]
            ),
            st.lists(TEXTS | st.sampled_from([href for href, _ in JOINS if len(href) < 500])),
        ),
        max_size=6,
    ),
    st.integers(min_value=1, max_value=40),
)
def test_the_joiner_returns_the_same_as_join(
    pages: list[tuple[str, list[str]]], max_entries: int
) -> None:
    joiner = Joiner(max_entries=max_entries)
    # Twice, so that the second round uses the cache of the first.
    for base, hrefs in [*pages, *pages]:
        joined = [join(base, href) for href in hrefs]
        assert joiner.links(base, hrefs) == list(dict.fromkeys(filter(None, joined)))


def test_the_cache_of_the_joiner_is_bounded() -> None:
    joiner = Joiner(max_entries=100)
    for page in range(200):
        joiner.links(f'https://example.com/{page}/', [f'link-{number}' for number in range(50)])
        kept = sum(map(len, joiner.young.values())) + sum(map(len, joiner.old.values()))
        assert kept <= 100
    joiner.links('https://example.com/', [f'/{number}' for number in range(10_000)])
    assert sum(map(len, joiner.young.values())) <= 50


def test_the_joiner_caches_nothing_for_directories_without_relative_links() -> None:
    joiner = Joiner(max_entries=100)
    for page in range(1000):
        joiner.links(f'https://example.com/{page}/', ['/a', '/b', 'https://example.com/c'])
    assert len(joiner.young) + len(joiner.old) == 1
    for page in range(1000):
        joiner.links(f'https://example.com/{page}/', ['of-it'])
        assert len(joiner.young) + len(joiner.old) <= 102


HOSTS = [
    ('https://Example.COM/a', 'example.com'),
    ('https://example.com:443/a', 'example.com'),
    ('http://example.com:443/a', 'example.com:443'),
    ('http://example.com:80', 'example.com'),
    ('HTTPS://example.com:80?x', 'example.com:80'),
    ('https://example.com./', 'example.com'),
    ('https://example.com.:8080/', 'example.com:8080'),
    ('http://[::1]:80/', '[::1]'),
    ('http://[::1]:8000/', '[::1]:8000'),
    ('http://127.0.0.1:5000#x', '127.0.0.1:5000'),
    ('nonsense', ''),
]


@pytest.mark.parametrize(('url', 'host'), HOSTS)
def test_the_host_includes_its_port_unless_it_is_the_default(url: str, host: str) -> None:
    assert host_of(url) == host


def test_ports_of_other_protocols_are_bad_and_web_ports_are_not() -> None:
    assert {0, 22, 25, 53, 110, 143, 6000, 6667, 10080} <= BAD_PORTS
    assert not {80, 443, 3000, 5000, 8000, 8080, 8443} & BAD_PORTS


@pytest.mark.parametrize(
    ('typed', 'url'),
    [
        ('https://bücher.example/ü?q=ä#ö', 'https://xn--bcher-kva.example/ü?q=ä#ö'),
        ('https://xn--bcher-kva.example/ü', 'https://xn--bcher-kva.example/ü'),
        ('https://BÜCHER.example', 'https://xn--bcher-kva.example'),
        ('HTTPS://Example.COM:0443/A/../b', 'https://example.com/A/../b'),
        ('http://example.com:8080?x', 'http://example.com:8080?x'),
        ('https://ex%61mple.com/%61', 'https://example.com/%61'),
        ('https://\uff45xample.com/', 'https://example.com/'),
        ('https://exa\u00admple.com/', 'https://example.com/'),
        ('http://127.1/', 'http://127.0.0.1/'),
        ('http://[::0:1]:80/', 'http://[::1]/'),
        # The queue says what is wrong with these.
        ('https://user:word@bücher.example/', 'https://user:word@bücher.example/'),
        ('http://1.2.3.4.5/', 'http://1.2.3.4.5/'),
        ('https://a b.example/', 'https://a b.example/'),
        ('ftp://bücher.example/', 'ftp://bücher.example/'),
        ('bücher.example', 'bücher.example'),
        ('', ''),
    ],
)
def test_the_host_of_a_typed_url_is_written_as_browsers_do_and_the_rest_kept(
    typed: str, url: str
) -> None:
    assert with_ascii_host(typed) == url
