"""The messages of the pipe byte by byte, and which frames are refused."""

from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silkline import framing, protocol
from silkline.crawl.documents.record import MAX_CHARACTERS
from tests.support.messages import from_runner, to_runner

KEY = UUID('00112233-4455-6677-8899-aabbccddeeff')
HEX = str(KEY)


def body_of(frame: bytes) -> bytes:
    assert framing.frame_length(frame[: framing.HEADER_BYTES]) == len(frame) - framing.HEADER_BYTES
    return frame[framing.HEADER_BYTES :]


GOLDEN: list[tuple[protocol.ToRunner | protocol.FromRunner, bytes]] = [
    (protocol.Alive(), b'\0\0\0\x10{"type":"alive"}'),
    (protocol.NewCommand(command='pause'), b'\0\0\0\x24{"type":"command","command":"pause"}'),
    (protocol.WantTasks(count=8), b'\0\0\0\x1f{"type":"want_tasks","count":8}'),
    (
        protocol.Finished(url_key=KEY, status='done', http_status=200, bytes=7),
        b'\0\0\0\x70{"type":"finished","url_key":"%s",' % HEX.encode()
        + b'"status":"done","http_status":200,"bytes":7}',
    ),
    (
        protocol.Discovered(
            urls=[protocol.FoundUrl(url_key=KEY, url='https://a.example/', depth=1)]
        ),
        b'\0\0\0\x76{"type":"discovered","urls":[{"url_key":"%s",' % HEX.encode()
        + b'"url":"https://a.example/","depth":1}]}',
    ),
    (
        protocol.LinksRefused(counts={'out_of_scope': 12, 'excluded': 3}),
        b'\0\0\0\x42{"type":"links_refused","counts":{"out_of_scope":12,"excluded":3}}',
    ),
    (
        protocol.Failed(error_code='oom', message='out of memory'),
        b'\0\0\0\x52{"type":"failed","error_code":"oom",'
        b'"message":"out of memory","is_retryable":true}',
    ),
]


@pytest.mark.parametrize(('message', 'frame'), GOLDEN, ids=lambda part: type(part).__name__)
def test_a_message_has_these_bytes(
    message: protocol.ToRunner | protocol.FromRunner, frame: bytes
) -> None:
    assert framing.encode(message) == frame
    decode = (
        framing.decode_to_runner
        if isinstance(message, protocol.NewCommand)
        else framing.decode_from_runner
    )
    assert decode(body_of(frame)) == message


@given(from_runner)
def test_a_message_of_a_runner_survives_the_pipe_unchanged(message: protocol.FromRunner) -> None:
    assert framing.decode_from_runner(body_of(framing.encode(message))) == message


@given(to_runner)
def test_a_message_of_a_supervisor_survives_the_pipe_unchanged(message: protocol.ToRunner) -> None:
    assert framing.decode_to_runner(body_of(framing.encode(message))) == message


def test_a_page_without_a_content_hash_can_be_neither_sent_nor_received() -> None:
    page = protocol.Page(url='u', title='As a plugin makes it')
    with pytest.raises(ValueError, match='content_hash'):
        protocol.Finished(url_key=KEY, status='done', page=page)
    for fields in ({}, {'content_hash': ''}):
        body = {
            'type': 'finished',
            'url_key': HEX,
            'status': 'done',
            'page': {'url': 'u', **fields},
        }
        with pytest.raises(framing.FrameMalformed):
            framing.decode_from_runner(msgspec.json.encode(body))


def test_an_answer_of_the_database_decodes_as_tasks() -> None:
    answer = {
        'command': 'continue',
        'job_id': HEX,
        'seq': 3,
        'pending': 1,
        'drained': False,
        'next_in_seconds': None,
        'tasks': [
            {'url_key': HEX, 'url': 'u', 'depth': 0, 'attempts': 1, 'etag': None}
            | {'last_modified': None}
        ],
        'links': [{'url_key': HEX, 'depth': 1, 'links': ['x']}],
        'hosts': [{'host': 'a', 'robots_txt': None, 'robots_age_seconds': 1.5}],
    }
    tasks = msgspec.convert(answer, protocol.Tasks)
    assert tasks.tasks == [protocol.Task(url_key=KEY, url='u', depth=0)]
    assert tasks.hosts[0].robots_age_seconds == 1.5


@pytest.mark.parametrize('text', ['a\0b', 'a\ud800b', '\0\udfff'])
def test_text_that_postgres_cannot_store_is_replaced(text: str) -> None:
    page = protocol.Page(url='u', content_hash='h', markdown=text, metadata={text: [text]})
    message = protocol.Finished(url_key=KEY, status='done', page=page)
    body = body_of(framing.encode(message))
    arrived = framing.decode_from_runner(body)
    assert isinstance(arrived, protocol.Finished)
    assert arrived.page is not None
    assert arrived.page.markdown is not None
    assert '\N{REPLACEMENT CHARACTER}' in arrived.page.markdown
    assert b'\\u0000' not in body


def test_nul_that_a_runner_sends_anyway_does_not_reach_the_database() -> None:
    body = b'{"type":"failed","error_code":"failed","message":"a\\u0000b\\\\u0000"}'
    message = framing.decode_from_runner(body)
    assert isinstance(message, protocol.Failed)
    assert message.message == 'a\N{REPLACEMENT CHARACTER}b\\u0000'


def test_text_that_mentions_nul_is_unchanged() -> None:
    message = protocol.Log(level='info', message='\\u0000')
    assert framing.decode_from_runner(body_of(framing.encode(message))) == message


@given(st.binary(max_size=200))
def test_garbage_is_refused_with_a_typed_error(body: bytes) -> None:
    with pytest.raises(framing.FrameMalformed):
        framing.decode_from_runner(body)


@given(from_runner, st.data())
def test_a_truncated_frame_is_refused(message: protocol.FromRunner, data: st.DataObject) -> None:
    body = body_of(framing.encode(message))
    with pytest.raises(framing.FrameMalformed):
        framing.decode_from_runner(body[: data.draw(st.integers(0, len(body) - 1))])


@pytest.mark.parametrize(
    'body',
    [
        b'{"type":"start","job_id":"%s","kind":"crawl","payload":{}}' % HEX.encode(),
        b'{"type":"finished","url_key":"x","status":"done"}',
        b'{"type":"finished","url_key":"%s","status":"in_progress"}' % HEX.encode(),
        b'{"type":"finished","url_key":"%s","status":"skipped"}' % HEX.encode(),
        b'{"type":"finished","url_key":"%s","status":"done","http_status":99999}' % HEX.encode(),
        b'{"type":"want_tasks","count":1001}',
        b'{"type":"failed","error_code":"made_up","message":""}',
        b'{"type":"done","reason":"drained","result":' + b'[' * 100_000,
        b'{"type":"log","level":"info","message":"\xff\xfe"}',
        b'null',
    ],
    ids=lambda body: body[:40],
)
def test_a_message_out_of_bounds_is_refused(body: bytes) -> None:
    with pytest.raises(framing.FrameMalformed):
        framing.decode_from_runner(body)


@pytest.mark.parametrize('header', [b'\0\0\0\0', b'\x04\0\0\x01', b'\xff\xff\xff\xff'])
def test_an_oversized_or_empty_frame_is_refused_before_it_is_read(header: bytes) -> None:
    with pytest.raises(framing.FrameTooLarge):
        framing.frame_length(header)


def test_an_oversized_message_is_not_sent() -> None:
    page = protocol.Page(url='u', content_hash='h', markdown='x' * framing.MAX_FRAME_BYTES)
    with pytest.raises(framing.FrameTooLarge):
        framing.encode(protocol.Finished(url_key=KEY, status='done', page=page))


def test_the_longest_page_fits_into_a_message_whatever_its_characters() -> None:
    page = protocol.Page(url='u', content_hash='h', markdown='\x1b' * MAX_CHARACTERS)
    assert framing.encode(protocol.Finished(url_key=KEY, status='done', page=page))


def test_the_quality_of_a_page_crosses_the_pipe() -> None:
    quality = protocol.Quality(
        kept=0.5,
        headings=4,
        headings_kept=3,
        code_blocks=2,
        code_blocks_kept=1,
        warnings=('headings_lost', 'code_lost'),
    )
    page = protocol.Page(url='u', content_hash='h', quality=quality)
    sent = framing.encode(protocol.Finished(url_key=KEY, status='done', page=page))
    received = framing.decode_from_runner(sent[framing.HEADER_BYTES :])
    assert isinstance(received, protocol.Finished)
    assert received.page == page
