"""How a worker logs: to stderr, one line per step, for people or for machines.

Owns the two formats and the last line of defence against keys in them: whatever the code above
did wrong, a secret that was named here, or that has the shape of one, leaves as `***`. What is
logged, and at which level, is decided where it happens.
"""

import json
import logging
import re
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal, TextIO

LogFormat = Literal['text', 'json']
Redact = Callable[[str], str]

# Never heard, at any level: at DEBUG, websockets and hpack write out requests with the key in them,
# and what the others warn of is told by rpc.py and live.py.
CHATTY = ('h2', 'hpack', 'httpcore', 'httpx', 'postgrest', 'realtime', 'websockets')

HIDDEN = '***'
# A shorter one is no key, and would take harmless words with it.
SHORTEST_SECRET = 8
# Keys of Supabase, JWTs, and the credentials of a URL; a part of one too, where a text was cut.
KEY_SHAPES = r'sb_secret_[\w-]+|\beyJ[\w-]{10,}(?:\.[\w-]*){0,2}|(?<=://)[^\s/@]+(?=@)'

# A crawled site may have a say in a message; it shall not write lines or move a cursor.
CONTROLS = {
    code: f'\\x{code:02x}' if code < 256 else f'\\u{code:04x}'
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
} | {ord('\n'): '\\n', ord('\r'): '\\r', ord('\t'): '\t'}
CONTROLS_IN_LINES = {code: text for code, text in CONTROLS.items() if code != ord('\n')}

JOB = re.compile(r'job ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):')


def set_up_logs(
    format: LogFormat = 'text', level: int | str = logging.INFO, *, secrets: Iterable[str] = ()
) -> None:
    """Send what the whole process logs, warns of or dies of to stderr, in one format."""
    handler = make_handler(format, secrets=secrets)
    logging.basicConfig(handlers=[handler], level=level, force=True)
    logging.captureWarnings(True)
    # A line that cannot be written would be shown whole, arguments and all.
    logging.raiseExceptions = False
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    sys.excepthook = log_death


def make_handler(
    format: LogFormat, *, secrets: Iterable[str] = (), stream: TextIO | None = None
) -> logging.Handler:
    handler = logging.StreamHandler(stream)
    redact = redactor(secrets)
    handler.setFormatter(JsonLines(redact) if format == 'json' else TextLines(redact))
    return handler


def redactor(secrets: Iterable[str]) -> Redact:
    """Replaces each of `secrets`, and what looks like one, by `***`."""
    # The longest first: one may be the beginning of another.
    named = sorted({one for one in secrets if len(one) >= SHORTEST_SECRET}, key=len, reverse=True)
    pattern = re.compile('|'.join([*map(re.escape, named), KEY_SHAPES]))
    return lambda text: pattern.sub(HIDDEN, text)


class Lines(logging.Formatter):
    """The parts of a line, redacted. Here and not in a filter, which sees no traceback."""

    def __init__(self, redact: Redact) -> None:
        super().__init__()
        self.redact = redact

    def message(self, record: logging.LogRecord) -> str:
        try:
            text = record.getMessage()
        except Exception:
            # A mistake in a logging call shall cost its beauty, not the line.
            text = f'{record.msg} {record.args}'
        return self.redact(text)

    def traceback(self, record: logging.LogRecord) -> str:
        parts = [self.formatException(record.exc_info)] if record.exc_info else []
        if record.stack_info:
            parts.append(self.formatStack(record.stack_info))
        return self.redact('\n'.join(parts))


class TextLines(Lines):
    """`HH:MM:SS LEVEL message`, and a traceback on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        time = self.formatTime(record, '%H:%M:%S')
        line = f'{time} {record.levelname} {self.message(record).translate(CONTROLS)}'
        traceback = self.traceback(record).translate(CONTROLS_IN_LINES)
        return f'{line}\n{traceback}' if traceback else line


class JsonLines(Lines):
    """One object per line: time, level, logger, message; job and exception where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        message = self.message(record)
        fields = {
            'time': time.isoformat(timespec='milliseconds').replace('+00:00', 'Z'),
            'level': record.levelname.lower(),
            'logger': record.name,
            'message': message,
        }
        if found := JOB.match(message):
            fields['job'] = found[1]
        if traceback := self.traceback(record):
            fields['exception'] = traceback
        return json.dumps(fields)


def log_death(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """What Python would print of an error that nobody caught, past all that is above."""
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
    else:
        logging.getLogger('silkline').critical(
            'ended by an error', exc_info=(kind, error, traceback)
        )
