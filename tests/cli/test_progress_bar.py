"""Messages and the progress bar on one terminal."""

from silkline.queue.rows import Progress
from tests.cli.test_output import progress
from tests.support.screen import screen_after

MESSAGE = 'silkline: stopping; stored pages are kept (Ctrl-C again exits at once)'
LONG_MESSAGE = f'silkline: [1] {"could not fetch robots.txt, " * 5}next retry in 18 s'

PROGRAM = f"""
import sys
from silkline.cli.progress_bar import progress_display
from silkline.cli.runtime import print_message
from silkline.queue.rows import Progress

with progress_display() as show:
    show(Progress.model_validate_json(sys.argv[1]))
    print_message({MESSAGE!r})
    print_message({LONG_MESSAGE!r})
print_message('after it')
"""


def test_messages_are_printed_above_the_bar() -> None:
    lines = screen_after(PROGRAM, Progress(**progress()).model_dump_json())
    [first, *others, bar, last] = lines

    assert first == MESSAGE
    assert ' '.join(others) == LONG_MESSAGE
    assert bar.startswith('processing ')
    assert last == 'after it'


def test_a_wait_has_its_own_line_below_the_bar() -> None:
    waiting = Progress(**progress(wait={'reason': 'pause', 'seconds': 30}))
    lines = screen_after(PROGRAM, waiting.model_dump_json())

    assert lines[-3].startswith('processing ')
    assert lines[-2] == 'one request to a.example every 30 s'
