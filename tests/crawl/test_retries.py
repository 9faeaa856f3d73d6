"""Which failures are retried, and when."""

from datetime import UTC, datetime

import pytest

from silkline.crawl.retries import (
    retry_after_seconds,
    retry_class_of,
    retry_delay_seconds,
    status_text,
)

NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ('status', 'retry_class'),
    [
        *((status, 'server') for status in (408, 425, 500, 502, 504, 520, 524, 527)),
        *((status, 'rate_limited') for status in (429, 503)),
        *((status, None) for status in (200, 301, 400, 401, 403, 404, 405, 410, 414, 451, 501)),
    ],
)
def test_each_status_has_a_retry_class_or_is_final(status: int, retry_class: str | None) -> None:
    assert retry_class_of(status) == retry_class


@pytest.mark.parametrize(
    ('header', 'seconds'),
    [
        ('120', 120),
        (' 7 ', 7),
        ('Mon, 16 Nov 2026 12:01:30 GMT', 90),
        ('Mon, 16 Nov 2026 12:01:30 -0000', 90),
        ('999999999999999999999999', 3600),
        ('Tue, 17 Nov 2026 12:00:00 GMT', 3600),
        ('0', None),
        ('-5', None),
        ('Mon, 16 Nov 2026 11:00:00 GMT', None),
        ('soon', None),
        ('1.5', None),
        ('', None),
        (None, None),
    ],
)
def test_retry_after_is_read_in_both_forms_and_bounded(
    header: str | None, seconds: float | None
) -> None:
    assert retry_after_seconds(header, now=NOW) == seconds


def test_each_delay_is_about_twice_the_previous_one_up_to_an_hour() -> None:
    for nth in range(1, 60):
        pause = retry_delay_seconds(nth, first_seconds=10)
        wanted = min(10 * 2 ** (nth - 1), 3600)
        assert 0.79 * wanted <= pause <= 1.21 * wanted


def test_a_status_is_written_with_its_name() -> None:
    assert status_text(404) == 'HTTP 404 Not Found'
    assert status_text(799) == 'HTTP 799'
