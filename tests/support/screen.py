"""What a terminal of 80 columns shows when a program has ended."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

from tests.support.servers import ROOT

COLUMNS = 80


def screen_after(program: str, *words: str) -> list[str]:
    """Run a Python program on a terminal; return the lines on its screen."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack('HHHH', 50, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [sys.executable, '-c', program, *words],
        cwd=ROOT,
        # Nothing else: variables change what programs assume about a terminal.
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
        # Raised when no process has the terminal open any more.
        pass
    os.close(ours)
    assert process.wait(60) == 0, written
    return render(written.decode())


def render(written: str) -> list[str]:
    """The part of a terminal that a bar needs: carriage return, cursor up, erase line."""
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
