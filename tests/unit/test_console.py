"""What is printed, and what is not."""

import pytest

from worker.console import amount, duration, plain


def test_what_would_steer_a_terminal_is_shown_instead() -> None:
    assert plain('a\x1b[31mb\x07\u202ec\nd') == 'a\\x1b[31mb\\x07\\u202ec\nd'


@pytest.mark.parametrize(
    ('seconds', 'text'),
    [(0, '0 s'), (119, '119 s'), (120, '2 min'), (7200, '2 h'), (172800, '2 d')],
)
def test_times_are_told_in_one_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ('size', 'text'), [(0, '0 B'), (999, '999 B'), (4400, '4.4 KB'), (1234567, '1.23 MB')]
)
def test_amounts_are_told_in_three_digits(size: int, text: str) -> None:
    assert amount(size) == text
