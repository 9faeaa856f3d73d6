"""The kind of a document: by its content type, and by its first bytes where that is wrong."""

import re

HTML = frozenset({'text/html', 'application/xhtml+xml'})
MARKDOWN = frozenset({'text/markdown', 'text/x-markdown'})
TEXT = frozenset({'text/plain'})
XML = frozenset({'application/xml', 'text/xml', 'application/rss+xml', 'application/atom+xml'})
# The default of file stores that do not know the type.
OCTETS = frozenset({'application/octet-stream', 'binary/octet-stream'})
# The types of compressed sitemaps.
ZIPPED = frozenset({'application/gzip', 'application/x-gzip'}) | OCTETS
MARKDOWN_ENDINGS = ('.md', '.markdown', '/llms.txt')
TEXT_ENDINGS = ('.md', '.markdown', '.txt')

# Files that some servers send as pages: PDF, images, archives.
_MAGIC = re.compile(rb'%PDF-|\x89PNG|GIF8[79]a|\xff\xd8\xff|PK\x03\x04|\x1f\x8b\x08')
# Bytes that text does not contain. Browsers check as many bytes for them.
_BINARY = re.compile(rb'[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]')
_BINARY_WITHIN = 1445


def kind_of(content_type: str | None, url: str) -> str | None:
    """html, markdown, text or xml; '' if only the body can show it; None for all other types."""
    if not content_type:
        return ''
    # A header that was sent twice is joined with a comma.
    name = re.split('[;,]', content_type, maxsplit=1)[0].strip().lower()
    if name in HTML:
        return 'html'
    if name in MARKDOWN:
        return 'markdown'
    path = url.partition('?')[0]
    if name in TEXT or (name in OCTETS and path.endswith(TEXT_ENDINGS)):
        return 'markdown' if path.endswith(MARKDOWN_ENDINGS) else 'text'
    if name in XML or (name in ZIPPED and path.endswith('.gz')):
        return 'xml'
    return 'xml' if name in OCTETS and path.endswith('.xml') else None


def is_binary(body: bytes, kind: str, content_type: str | None) -> bool:
    """Whether a body is a binary file that was sent without a type, or with a wrong one."""
    if _MAGIC.match(body):
        return True
    if kind == 'html' or body.startswith((b'\xff\xfe', b'\xfe\xff')):
        return False
    is_wide = content_type is not None and 'utf-16' in content_type.lower()
    return not is_wide and _BINARY.search(body, 0, _BINARY_WITHIN) is not None
