"""What a crawl says about its end, and what it makes of a typed URL."""

import pytest

from local.crawl_command import with_scheme
from local.crawl_summary import Reasons, allowance


@pytest.mark.parametrize(
    ('url', 'words'),
    [
        ('http://127.0.0.1:8000/', '--allow-network 127.0.0.0/8'),
        ('http://localhost/', '--allow-network 127.0.0.0/8 --allow-network ::1/128'),
        ('http://docs.localhost/', '--allow-network 127.0.0.0/8 --allow-network ::1/128'),
        ('http://192.168.1.20/', '--allow-network 192.168.1.20/32'),
        ('http://[fd00::1]:80/', '--allow-network fd00::1/128'),
        ('http://intranet.example/', '--allow-network CIDR'),
    ],
)
def test_the_way_to_allow_an_address_is_told(url: str, words: str) -> None:
    assert allowance(url) == words


@pytest.mark.parametrize(
    ('typed', 'meant'),
    [
        ('docs.example.com', 'https://docs.example.com'),
        ('docs.example.com/a?b=c', 'https://docs.example.com/a?b=c'),
        ('localhost:8000', 'http://localhost:8000'),
        ('192.168.1.20', 'http://192.168.1.20'),
        ('bücher.example', 'https://bücher.example'),
        ('https://a.example/', 'https://a.example/'),
        ('ftp://a.example/', 'ftp://a.example/'),
        ('javascript:alert(1)', 'javascript:alert(1)'),
        ('mailto:a@b.example', 'mailto:a@b.example'),
    ],
)
def test_a_url_is_taken_as_it_is_meant(typed: str, meant: str) -> None:
    assert with_scheme(typed) == meant


def test_the_most_frequent_reasons_come_first() -> None:
    reasons = Reasons()
    reasons.counts.update({'HTTP 404': 7, 'HTTP 500': 9, 'timed out': 1, 'HTTP 403': 2})

    assert reasons.text(2) == '9 HTTP 500, 7 HTTP 404, 3 for other reasons'
    assert reasons.text() == '9 HTTP 500, 7 HTTP 404, 2 HTTP 403, 1 timed out'
