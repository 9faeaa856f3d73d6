"""Tables that fit a terminal, and control characters that never reach it."""

import pytest
from rich.text import Text

from silkline.cli.terminal import lay_out, printable, shorten, wrapped_columns


def test_control_characters_are_escaped() -> None:
    assert printable('a\x1b[31mb\x07\u202ec\nd') == 'a\\x1b[31mb\\x07\\u202ec\nd'


def table(width: int | None) -> list[str]:
    rows = [('job', 'status', 'url'), ('a' * 20, 'completed', 'https://a.example/')]
    widths = [max(len(row[nth]) for row in rows) for nth in range(3)]
    wraps = wrapped_columns(widths, width)
    cells = ([Text(cell) for cell in row] for row in rows)
    return '\n'.join(lay_out(row, widths, wraps).plain for row in cells).splitlines()


@pytest.mark.parametrize('width', [None, 51])
def test_a_table_that_fits_has_one_line_per_row(width: int | None) -> None:
    assert table(width) == [
        'job                   status     url',
        'aaaaaaaaaaaaaaaaaaaa  completed  https://a.example/',
    ]


def test_a_column_without_room_goes_to_the_next_line_and_nothing_is_cut() -> None:
    assert table(50) == [
        'job                   status',
        '  url',
        'aaaaaaaaaaaaaaaaaaaa  completed',
        '  https://a.example/',
    ]
    assert table(25) == [
        'job',
        '  status',
        '  url',
        'aaaaaaaaaaaaaaaaaaaa',
        '  completed',
        '  https://a.example/',
    ]


def test_an_empty_cell_adds_no_empty_line() -> None:
    row = [Text('a'), Text('')]

    assert lay_out(row, [1, 9], [False, True]).plain == 'a'


def test_text_is_shortened_by_its_width_on_the_screen() -> None:
    assert shorten('潮位計の手引き', 10) == '潮位計の…'
    assert shorten('Guide', 5) == 'Guide'
    assert shorten('Guides', 5) == 'Guid…'
    assert shorten('潮位計の手引き', None) == '潮位計の手引き'
