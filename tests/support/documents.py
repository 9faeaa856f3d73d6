"""Responses without a network, and what the built-in reader makes of them."""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from silkline import framing, protocol
from silkline.crawl.documents.reader import PageReader
from silkline.crawl.fetched import Fetched
from silkline.crawl.options import CrawlOptions
from silkline.crawl.responses import Response

URL = 'https://a.example/docs/page'


def make_reader(
    agent: str = 'silkline', *, extractor: Any = None, hooks: Any = None, **options: Any
) -> PageReader:
    return PageReader(CrawlOptions(**options), agent=agent, extractor=extractor, hooks=hooks)


def response(body: bytes | str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        url=URL,
        status=200,
        headers={'Content-Type': 'text/html', **(headers or {})},
        body=body.encode() if isinstance(body, str) else body,
        address='192.0.2.1',
        seconds=0.1,
        first_byte_seconds=0.1,
    )


def read(reader: PageReader, one: Response, url: str = URL, *, depth: int = 1) -> Fetched:
    return reader.read(one, task=protocol.Task(url_key=uuid4(), url=url, depth=depth), url=url)


def page_of(html: str, reader: PageReader | None = None) -> protocol.Page:
    """The page as the supervisor receives it."""
    page = read(reader or make_reader(), response(html)).page
    assert page is not None
    sent = framing.encode(protocol.Finished(url_key=uuid4(), status='done', page=page))
    received = framing.decode_from_runner(sent[framing.HEADER_BYTES :])
    assert isinstance(received, protocol.Finished)
    assert received.page is not None
    return received.page
