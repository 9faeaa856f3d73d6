"""How tables fit a terminal, and what never reaches one."""

import pytest
from rich.text import Text
from silkline.cli.terminal import laid_out, line_beginnings, plain, shortened


def test_what_would_steer_a_terminal_is_shown_instead() -> None:
    assert plain('a\x1b[31mb\x07\u202ec\nd') == 'a\\x1b[31mb\\x07\\u202ec\nd'


def table(width: int | None) -> list[str]:
    rows = [('job', 'status', 'url'), ('a' * 20, 'completed', 'https://a.example/')]
    widths = [max(len(row[nth]) for row in rows) for nth in range(3)]
    begins_line = line_beginnings(widths, width)
    cells = ([Text(cell) for cell in row] for row in rows)
    return '\n'.join(laid_out(row, widths, begins_line).plain for row in cells).splitlines()


@pytest.mark.parametrize('width', [None, 51])
def test_a_table_that_fits_has_a_line_per_row(width: int | None) -> None:
    assert table(width) == [
        'job                   status     url',
        'aaaaaaaaaaaaaaaaaaaa  completed  https://a.example/',
    ]


def test_a_column_without_room_goes_on_the_next_line_and_nothing_is_cut() -> None:
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


def test_an_empty_cell_makes_no_empty_line() -> None:
    row = [Text('a'), Text('')]

    assert laid_out(row, [1, 9], [False, True]).plain == 'a'


def test_titles_are_shortened_by_their_width_on_the_screen() -> None:
    assert shortened('潮位計の手引き', 10) == '潮位計の…'
    assert shortened('Guide', 5) == 'Guide'
    assert shortened('Guides', 5) == 'Guid…'
    assert shortened('潮位計の手引き', None) == '潮位計の手引き'
