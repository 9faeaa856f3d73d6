"""The summary of a crawl: reasons, advice, and the messages of its worker."""

import json
from uuid import UUID

import pytest

from silkline.cli.crawl.burst_worker import format_log_line
from silkline.cli.crawl.summary import Reasons, allow_network_option, explain_start
from silkline.queue.rows import PageRow


@pytest.mark.parametrize(
    ('url', 'option'),
    [
        ('http://127.0.0.1:8000/', '--allow-network 127.0.0.0/8'),
        ('http://localhost/', '--allow-network 127.0.0.0/8 --allow-network ::1/128'),
        ('http://docs.localhost/', '--allow-network 127.0.0.0/8 --allow-network ::1/128'),
        ('http://192.168.1.20/', '--allow-network 192.168.1.20/32'),
        ('http://[fd00::1]:80/', '--allow-network fd00::1/128'),
        ('http://intranet.example/', '--allow-network CIDR'),
    ],
)
def test_the_option_that_allows_a_host_is_suggested(url: str, option: str) -> None:
    assert allow_network_option(url) == option


@pytest.mark.parametrize(
    ('url', 'reason', 'advice'),
    [
        ('http://10.0.0.1/', 'forbidden_address', 'its network, add --allow-network 10.0.0.1/32'),
        (
            'http://10.0.0.1:9/',
            'forbidden_address',
            'http://10.0.0.1:9/: browsers refuse this port',
        ),
        ('https://a.example/', 'robots', 'If the site is yours, add -o obey_robots=false'),
        ('https://a.example/', 'host_unavailable', 'the host does not answer'),
    ],
)
def test_a_skipped_start_url_is_explained_with_advice(url: str, reason: str, advice: str) -> None:
    row = PageRow.model_validate(
        dict.fromkeys(PageRow.model_fields)
        | {'url_key': UUID(int=1), 'url': url, 'depth': 0, 'attempts': 0}
        | {'status': 'skipped', 'skip_reason': reason}
    )

    assert advice in explain_start(row)


def test_the_most_frequent_reasons_are_listed_first() -> None:
    reasons = Reasons()
    reasons.counts.update({'HTTP 404': 7, 'HTTP 500': 9, 'timed out': 1, 'HTTP 403': 2})

    assert reasons.text(2) == '9 HTTP 500, 7 HTTP 404, 3 for other reasons'
    assert reasons.text() == '9 HTTP 500, 7 HTTP 404, 2 HTTP 403, 1 timed out'


@pytest.mark.parametrize(
    ('line', 'message'),
    [
        ({'message': 'job 7: a host is gone', 'job': '7'}, 'silkline: a host is gone'),
        ({'message': 'no answer'}, 'silkline: no answer'),
        ({'message': 'ended', 'exception': 'Trace\nback'}, 'silkline: ended\nTrace\nback'),
    ],
)
def test_a_log_line_is_printed_without_the_job_id(line: dict[str, str], message: str) -> None:
    assert format_log_line(json.dumps(line)) == message


@pytest.mark.parametrize('line', ['silkline: no key', '7', 'null', '{"other": 1}'])
def test_a_line_that_is_not_from_the_log_is_printed_unchanged(line: str) -> None:
    assert format_log_line(line) == line
