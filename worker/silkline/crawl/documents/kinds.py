"""What a response holds: by its content type, and by its first bytes where that is wrong."""

import re

HTML = frozenset({'text/html', 'application/xhtml+xml'})
MARKDOWN = frozenset({'text/markdown', 'text/x-markdown'})
TEXT = frozenset({'text/plain'})
XML = frozenset({'application/xml', 'text/xml', 'application/rss+xml', 'application/atom+xml'})
# What storages send that were not told what they hold.
OCTETS = frozenset({'application/octet-stream', 'binary/octet-stream'})
# What a compressed sitemap is sent as.
ZIPPED = frozenset({'application/gzip', 'application/x-gzip'}) | OCTETS
MARKDOWN_ENDINGS = ('.md', '.markdown', '/llms.txt')
TEXT_ENDINGS = ('.md', '.markdown', '.txt')

# Files that are sent as pages: PDF, images, archives.
_MAGIC = re.compile(rb'%PDF-|\x89PNG|GIF8[79]a|\xff\xd8\xff|PK\x03\x04|\x1f\x8b\x08')
# What no text holds: browsers look for it in as many bytes.
_BINARY = re.compile(rb'[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]')
_BINARY_WITHIN = 1445


def kind_of(content_type: str | None, url: str) -> str | None:
    """html, markdown, text or xml; empty where the body has to tell; None for all others."""
    if not content_type:
        return ''
    # Sent twice, it comes as one with a comma.
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
    """Whether a body is a file that was sent without its type, or under the wrong one."""
    if _MAGIC.match(body):
        return True
    if kind == 'html' or body.startswith((b'\xff\xfe', b'\xfe\xff')):
        return False
    is_wide = content_type is not None and 'utf-16' in content_type.lower()
    return not is_wide and _BINARY.search(body, 0, _BINARY_WITHIN) is not None
