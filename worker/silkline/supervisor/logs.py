"""How a worker logs: to stderr, one line per step, for people or for machines.

Owns the two formats, and is the last line of defence against secrets in a log: the secrets it was
given, and anything shaped like a key, are replaced by `***`. What is logged, and at which level,
is decided where it happens.
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

# Silenced at every level: at DEBUG, websockets and hpack log requests with the key in them, and
# rpc.py and realtime.py report what the others warn about.
CHATTY = ('h2', 'hpack', 'httpcore', 'httpx', 'postgrest', 'realtime', 'websockets')

HIDDEN = '***'
# Shorter strings are not keys, and replacing them would hit harmless words.
SHORTEST_SECRET = 8
# Supabase keys, JWTs, and credentials in URLs; also parts of them, where a text was cut.
KEY_SHAPES = r'sb_secret_[\w-]+|\beyJ[\w-]{10,}(?:\.[\w-]*){0,2}|(?<=://)[^\s/@]+(?=@)'

# Messages may contain text of a crawled site; it must not start new lines or move the cursor.
CONTROLS = {
    code: f'\\x{code:02x}' if code < 256 else f'\\u{code:04x}'
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
} | {ord('\n'): '\\n', ord('\r'): '\\r', ord('\t'): '\t'}
CONTROLS_IN_LINES = {code: text for code, text in CONTROLS.items() if code != ord('\n')}

JOB = re.compile(r'job ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):')


def set_up_logs(
    format: LogFormat = 'text', level: int | str = logging.INFO, *, secrets: Iterable[str] = ()
) -> None:
    """Send all logs, warnings and uncaught errors of this process to stderr, in one format."""
    handler = make_handler(format, secrets=secrets)
    logging.basicConfig(handlers=[handler], level=level, force=True)
    logging.captureWarnings(True)
    # Otherwise a record that fails to format would be printed with all its arguments.
    logging.raiseExceptions = False
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    sys.excepthook = log_uncaught


def make_handler(
    format: LogFormat, *, secrets: Iterable[str] = (), stream: TextIO | None = None
) -> logging.Handler:
    handler = logging.StreamHandler(stream)
    redact = redactor(secrets)
    handler.setFormatter(JsonLines(redact) if format == 'json' else TextLines(redact))
    return handler


def redactor(secrets: Iterable[str]) -> Redact:
    """Replaces each of `secrets`, and what looks like one, by `***`."""
    # Longest first: one may be a prefix of another.
    named = sorted({one for one in secrets if len(one) >= SHORTEST_SECRET}, key=len, reverse=True)
    pattern = re.compile('|'.join([*map(re.escape, named), KEY_SHAPES]))
    return lambda text: pattern.sub(HIDDEN, text)


class Lines(logging.Formatter):
    """The parts of a line, redacted here because a filter does not see tracebacks."""

    def __init__(self, redact: Redact) -> None:
        super().__init__()
        self.redact = redact

    def message(self, record: logging.LogRecord) -> str:
        try:
            text = record.getMessage()
        except Exception:
            # A wrong logging call should still produce a line.
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
    """One object per line: time, level, logger, message; job and exception if there is one."""

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


def log_uncaught(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """Log an uncaught error; Python itself would print it unredacted."""
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
    else:
        logging.getLogger('silkline').critical('uncaught error', exc_info=(kind, error, traceback))
