"""What is said to the database about URLs."""

import pytest
from silkline.crawl.engine.frontier import start_of
from silkline.crawl.urls import key_of


@pytest.mark.parametrize(
    ('url', 'wire'),
    [
        ('https://a.example', 'https://a.example/'),
        ('HTTPS://A.example/Docs#intro', 'https://a.example/Docs'),
        ('https://bücher.example/ü', 'https://xn--bcher-kva.example/%C3%BC'),
        (' https://a.example/x y ', 'https://a.example/x%20y'),
    ],
)
def test_a_start_is_read_as_a_link_is(url: str, wire: str) -> None:
    start = start_of(url)
    assert (start.url, start.url_key, start.skip_reason) == (wire, key_of(wire), None)


def test_a_start_that_is_no_url_is_told_as_such() -> None:
    start = start_of('http://1.2.3.4.5/')
    assert (start.url, start.skip_reason) == ('http://1.2.3.4.5/', 'invalid_url')
