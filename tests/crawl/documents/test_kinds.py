"""Documents that a storage sends as plain octets, because nobody told it what they are."""

import pytest
from silkline.crawl.documents.kinds import kind_of

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
def test_octets_are_what_their_name_says(content_type: str, path: str, kind: str | None) -> None:
    assert kind_of(content_type, SITE + path) == kind
