"""What somebody sees on a terminal of 80 columns, while a bar is drawn and while it is not."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest
from silkline.cli import output, watch
from silkline.queue.rows import Progress

from tests.cli.test_output import progress
from tests.support.servers import ROOT

COLUMNS = 80
MESSAGE = 'silkline: stopping; what was crawled is kept (Ctrl-C again ends at once)'
LONG_MESSAGE = f'silkline: [1] {"its robots.txt cannot be had, " * 5}trying again in 18 s'

SAYING = f"""
import sys
from worker import console
from silkline.queue.rows import Progress
from silkline.cli.commands.jobs import shown

with shown(as_json=False) as show:
    show(Progress.model_validate_json(sys.argv[1]))
    output.say({MESSAGE!r})
    output.say({LONG_MESSAGE!r})
output.say('after it')
"""

LISTING = """
from datetime import UTC, datetime, timedelta
from uuid import UUID
from worker import console
from silkline.queue.rows import Job

now = datetime.now(UTC)


def job(number, url, **facts):
    row = {name: None for name in Job.model_fields}
    numbers = [name for name, field in Job.model_fields.items() if field.annotation in (int, float)]
    counts = dict.fromkeys(numbers, 0)
    given = {'id': UUID(int=number), 'kind': 'crawl', 'payload': {'url': url}, 'status': 'failed'}
    times = {'run_after': now, 'created_at': now - timedelta(days=3, hours=1)}
    return Job(**{**row, **counts, **given, **times, 'progress_percentage': 100, **facts})


one = job(0xA, 'https://a.example/')
output.print_jobs([one, job(0xB, f'https://{"b" * 60}.example/')])
output.print_jobs([one, job(0xC, 'https://c.example/', kind='audit')])
later = datetime(2999, 1, 2, 3, 4, 5).astimezone()
output.print_jobs([job(0xD, 'https://d.example/', status='pending', run_after=later)])
"""


def seen(program: str, *words: str) -> list[str]:
    """The lines that stand on the terminal in the end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack('HHHH', 50, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [sys.executable, '-c', program, *words],
        cwd=ROOT,
        # Nothing else: variables change what programs think of a terminal.
        env={'PATH': os.environ['PATH'], 'TERM': 'xterm'},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    written = b''
    try:
        while chunk := os.read(ours, 65536):
            written += chunk
    except OSError:
        # So a terminal ends that nobody has open any more.
        pass
    os.close(ours)
    assert process.wait(60) == 0, written
    return screen(written.decode())


def screen(written: str) -> list[str]:
    """As much of a terminal as a bar needs: carriage returns, cursor up, erased lines."""
    rows = ['']
    row = column = 0
    for part in re.findall(r'\x1b\[[?\d;]*[A-Za-z]|.|\n', written, re.DOTALL):
        if part == '\r':
            column = 0
        elif part == '\n':
            row += 1
        elif part.startswith('\x1b['):
            count = int(part[2:-1]) if part[2:-1].isdecimal() else 1
            if part[-1] == 'A':
                row = max(0, row - count)
            elif part[-1] == 'K':
                rows[row] = ''
        else:
            if column == COLUMNS:
                row, column = row + 1, 0
            rows += [''] * (row + 1 - len(rows))
            rows[row] = rows[row].ljust(column)[:column] + part + rows[row][column + 1 :]
            column += 1
        rows += [''] * (row + 1 - len(rows))
    return [line.rstrip() for line in rows if line.strip()]


def test_what_is_said_while_a_bar_is_shown_stands_above_it() -> None:
    lines = seen(SAYING, Progress(**progress()).model_dump_json())
    [first, *others, bar, last] = lines

    assert first == MESSAGE
    assert ' '.join(others) == LONG_MESSAGE
    assert bar.startswith('processing ')
    assert last == 'after it'


def test_jobs_take_a_line_each_where_their_urls_allow_it() -> None:
    lines = seen(LISTING)

    assert lines[0].split() == ['job', 'status', 'done', 'enqueued', 'url']
    assert lines[1] == '00000000000a  failed  100 %  3 d ago   https://a.example/'
    assert lines[2] == '00000000000b  failed  100 %  3 d ago'
    assert lines[3] == f'  https://{"b" * 60}.example/'
    assert lines[4].split() == ['job', 'status', 'done', 'enqueued', 'kind', 'url']
    assert lines[6].split()[-2:] == ['audit', 'https://c.example/']


def test_no_job_at_all_is_told_with_how_to_make_one(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_jobs([])

    assert capsys.readouterr() == ('', 'there is no job yet: silkline crawl URL makes one\n')


def test_a_job_that_is_not_due_says_so_beside_its_status() -> None:
    assert 'pending (not before 2999-01-02 03:04:05)' in seen(LISTING)[-2]


def test_the_end_of_saving_is_looked_for_soon_because_it_is_no_news() -> None:
    saving = Progress(**progress(status='stopped', is_saving=True))
    running = Progress(**progress())

    assert watch.pause_after(saving, is_live=True, poll_seconds=5.0) <= 1
    assert watch.pause_after(running, is_live=True, poll_seconds=1.0) == 5
    assert watch.pause_after(running, is_live=False, poll_seconds=1.0) == 1
