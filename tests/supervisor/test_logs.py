"""What a worker writes to stderr, and what never gets there."""

import io
import json
import logging
import re
import subprocess
import sys
from typing import Any
from uuid import uuid4

import pytest

from silkline.supervisor.logs import LogFormat, make_handler

KEY = 'sb_publishable_0123456789'
GIVEN = 'a-token-of-no-known-shape'
JWT = 'eyJhbGciOiJIUzI1NiJ9.eyJyb2xlIjoiY3Jhd2xfd29ya2VyIn0.c2lnbmF0dXJl'


class Log:
    """A logger, and what it has written."""

    def __init__(self, format: LogFormat) -> None:
        self._stream = io.StringIO()
        self.logger = logging.Logger('silkline.test')
        self.logger.addHandler(make_handler(format, secrets=[KEY, GIVEN, ''], stream=self._stream))

    @property
    def text(self) -> str:
        return self._stream.getvalue()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


@pytest.fixture(params=['text', 'json'])
def log(request: pytest.FixtureRequest) -> Log:
    return Log(request.param)


def test_a_line_of_text_has_time_level_and_message() -> None:
    log = Log('text')
    log.logger.warning('worker %s: %d slots', 'w', 4)

    assert re.fullmatch(r'\d\d:\d\d:\d\d WARNING worker w: 4 slots\n', log.text)


def test_a_line_of_json_has_its_parts_as_fields() -> None:
    log = Log('json')
    job_id = str(uuid4())
    log.logger.info('job %s: completed', job_id)
    log.logger.info('worker: no job %s:', job_id)
    first, second = log.objects

    assert re.fullmatch(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z', first.pop('time'))
    assert first == {
        'level': 'info',
        'logger': 'silkline.test',
        'message': f'job {job_id}: completed',
        'job': job_id,
    }
    assert 'job' not in second


def test_both_formats_log_exceptions() -> None:
    for log in (text := Log('text'), objects := Log('json')):
        try:
            raise ValueError('of no use')
        except ValueError:
            log.logger.exception('it broke')

    assert text.lines[0].endswith('ERROR it broke')
    assert text.lines[-1] == 'ValueError: of no use'
    assert objects.objects[0]['exception'].endswith('\nValueError: of no use')


@pytest.mark.parametrize(
    'secret',
    [KEY, GIVEN, JWT, JWT[:30], 'sb_secret_abc-DEF_1', 'user:pass', 'user:p:a'],
)
def test_a_secret_reaches_neither_message_nor_traceback(log: Log, secret: str) -> None:
    try:
        try:
            raise KeyError(f'https://{secret}@host/')
        except KeyError as error:
            raise ValueError(f'because of https://{secret}@host/') from error
    except ValueError:
        log.logger.exception(
            'calling https://%s@host/ with %s', secret, {'a': f'https://{secret}@b'}
        )
    log.logger.info(f'https://{secret}@host/', stack_info=True)

    assert secret not in log.text
    assert 'https://***@host/' in log.text


def test_an_empty_secret_hides_nothing(log: Log) -> None:
    log.logger.info('plain words')

    assert 'plain words' in log.text
    assert '***' not in log.text


def test_a_message_cannot_start_a_new_line(log: Log) -> None:
    log.logger.info('title: %s', 'x\n12:00:00 INFO forged\r\x1b[2J\u2028\x85')

    assert len(log.lines) == 1
    assert '\x1b' not in log.text


def test_a_wrong_logging_call_still_produces_a_line(log: Log) -> None:
    log.logger.info('%d slots', f'four of {GIVEN}')

    assert '%d slots' in log.text
    assert GIVEN not in log.text


def test_text_outside_of_unicode_is_still_logged(log: Log) -> None:
    log.logger.info('page \udc80 \N{SNOWMAN}')

    assert 'page' in log.text


PROGRAM = f"""
import logging, sys, warnings
from silkline.supervisor.logs import set_up_logs
set_up_logs({{format!r}}, 'DEBUG', secrets=[{GIVEN!r}])
for name in ('httpx', 'httpcore.http11', 'realtime._async.client', 'websockets.client', 'hpack'):
    logging.getLogger(name).error('chatter')
logging.getLogger('silkline.queue.rpc').debug('told with {GIVEN}')
warnings.warn('warned of {GIVEN}')
print('data')
raise RuntimeError('died of {GIVEN}')
"""


@pytest.mark.parametrize('format', ['text', 'json'])
def test_logs_warnings_and_uncaught_errors_share_one_format(format: LogFormat) -> None:
    done = subprocess.run(
        [sys.executable, '-c', PROGRAM.format(format=format)], capture_output=True, text=True
    )

    assert (done.returncode, done.stdout) == (1, 'data\n')
    assert 'chatter' not in done.stderr
    assert GIVEN not in done.stderr
    for words in ('told with ***', 'warned of ***', 'died of ***'):
        assert words in done.stderr
    if format == 'json':
        assert [json.loads(line)['level'] for line in done.stderr.splitlines()] == [
            'debug',
            'warning',
            'critical',
        ]
