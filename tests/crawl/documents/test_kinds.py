"""The kind of a document, by its content type and its URL."""

import pytest

from silkline.crawl.documents.kinds import kind_of
from tests.support.documents import URL

SITE = 'https://a.example'


@pytest.mark.parametrize('content_type', ['application/octet-stream', 'binary/octet-stream'])
@pytest.mark.parametrize(
    ('path', 'kind'),
    [
        ('/readme.md', 'markdown'),
        ('/readme.md?version=2', 'markdown'),
        ('/guide.markdown', 'markdown'),
        ('/llms.txt', 'markdown'),
        ('/notes.txt', 'text'),
        ('/sitemap.xml', 'xml'),
        ('/sitemap.xml.gz', 'xml'),
        ('/sitemap.xml.gz?v=1', 'xml'),
        ('/program.exe', None),
        ('/download?file=readme.md', None),
        ('/', None),
    ],
)
def test_a_document_of_unknown_type_is_judged_by_its_file_name(
    content_type: str, path: str, kind: str | None
) -> None:
    assert kind_of(content_type, SITE + path) == kind


@pytest.mark.parametrize(
    ('content_type', 'url', 'kind'),
    [
        ('text/html; charset=utf-8', URL, 'html'),
        ('TEXT/HTML', URL, 'html'),
        ('text/html, text/html; charset=utf-8', URL, 'html'),
        ('application/xhtml+xml', URL, 'html'),
        ('text/plain', URL, 'text'),
        ('text/plain', 'https://a.example/readme.md', 'markdown'),
        ('text/plain', 'https://a.example/llms.txt', 'markdown'),
        ('text/markdown', URL, 'markdown'),
        ('application/xml', URL, 'xml'),
        ('application/gzip', 'https://a.example/sitemap.xml.gz', 'xml'),
        ('application/gzip', 'https://a.example/archive.tar', None),
        (None, URL, ''),
        ('', URL, ''),
        ('image/png', URL, None),
        ('application/pdf', URL, None),
        ('application/json', URL, None),
        ('nonsense', URL, None),
    ],
)
def test_the_kind_of_a_document_follows_from_its_content_type_and_url(
    content_type: str | None, url: str, kind: str | None
) -> None:
    assert kind_of(content_type, url) == kind
