"""What a crawl says about its end, and what it makes of a typed URL."""

import json
from uuid import UUID

import pytest
from silkline.cli.arguments import with_scheme
from silkline.cli.crawl.burst_worker import said
from silkline.cli.crawl.summary import Reasons, about_start, allowance
from silkline.queue.rows import PageRow


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
    ('url', 'reason', 'told'),
    [
        ('http://10.0.0.1/', 'forbidden_address', 'network: --allow-network 10.0.0.1/32'),
        (
            'http://10.0.0.1:9/',
            'forbidden_address',
            'http://10.0.0.1:9/: browsers refuse this port',
        ),
        ('https://a.example/', 'robots', 'If the site is yours: -o obey_robots=false'),
        ('https://a.example/', 'host_unavailable', 'its host does not answer'),
    ],
)
def test_a_start_that_was_skipped_is_told_with_what_helps(url: str, reason: str, told: str) -> None:
    row = PageRow.model_validate(
        dict.fromkeys(PageRow.model_fields)
        | {'url_key': UUID(int=1), 'url': url, 'depth': 0, 'attempts': 0}
        | {'status': 'skipped', 'skip_reason': reason}
    )

    assert told in about_start(row)


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


@pytest.mark.parametrize(
    ('line', 'told'),
    [
        ({'message': 'job 7: a host is gone', 'job': '7'}, 'silkline: a host is gone'),
        ({'message': 'no answer'}, 'silkline: no answer'),
        ({'message': 'ended', 'exception': 'Trace\nback'}, 'silkline: ended\nTrace\nback'),
    ],
)
def test_what_a_worker_logs_is_told_without_what_is_known(line: dict[str, str], told: str) -> None:
    assert said(json.dumps(line)) == told


@pytest.mark.parametrize('line', ['silkline: no key', '7', 'null', '{"other": 1}'])
def test_what_a_worker_says_otherwise_is_told_as_it_is(line: str) -> None:
    assert said(line) == line
