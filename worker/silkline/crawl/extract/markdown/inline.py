"""Write the text inside a block: emphasis, code, links, images, line breaks.

The caller joins the pieces, collapses their spaces (they hold no other white space) and then calls
`finished` of `escaping.py`, which replaces the placeholders in them.
"""

import re
from functools import cached_property

from silkline.crawl.extract.facts import MAX_MARKDOWN
from silkline.crawl.extract.markdown.emphasis import CLOSED, OPENED
from silkline.crawl.extract.markdown.escaping import (
    BREAK,
    IN_LINK,
    LAST_BRACKET,
    OUT_OF_LINK,
    PLACEHOLDERS,
    code_span,
    escaped_marks,
    finished,
    flattened,
    folded,
    with_brackets,
)
from silkline.crawl.extract.markdown.formulas import formula_of, split_formulas, written
from silkline.crawl.extract.markdown.links import LinkResolver
from silkline.crawl.extract.tree import BLOCKS, Node

_EMPHASIS = {
    'strong': '**',
    'b': '**',
    'em': '*',
    'i': '*',
    'dfn': '*',
    'cite': '*',
    'del': '~~',
    's': '~~',
    'strike': '~~',
}
_CODE = frozenset({'code', 'kbd', 'samp', 'tt'})
# Links that highlighters and documentation generators add to a heading or a name.
_SELF_LINK_NAMES = re.compile(
    r'headerlink|hash-link|header-anchor|anchorjs|heading-anchor|viewcode-|(?:^|\s)src(?:\s|$)'
)
_FORMULA_NAMES = re.compile(r'(?:^|[\s_-])(?:math|latex|tex|arithmatex)(?:$|[\s_-])')
_MATH_SCRIPT = re.compile(r'mathjax|katex', re.IGNORECASE)
_SOURCES = ('src', 'data-src', 'data-original', 'data-lazy-src')
_PIXEL = frozenset({'0', '1', '1px', '0px'})


class InlineWriter:
    def __init__(self, resolver: LinkResolver, *, html: str) -> None:
        self.resolver = resolver
        self._html = html
        self._marks: list[str] = []
        self._is_heading = False
        self.is_link = False

    def escape(self, text: str) -> str:
        """Write text of the page so that it is read as text, with spaces as its white space."""
        # No more is kept, and ten megabytes of marks would take seconds.
        if len(text) > MAX_MARKDOWN:
            text = text[:MAX_MARKDOWN]
        is_printable = text.isprintable()
        flat = text if is_printable else flattened(text)
        # Many times faster than a pattern, and enough for most text.
        if (is_printable or flat.isprintable()) and not (
            '_' in flat
            or '*' in flat
            or '&' in flat
            or '<' in flat
            or '`' in flat
            or ']' in flat
            or '~' in flat
            or '\\' in flat
        ):
            return flat.translate(IN_LINK) if self.is_link and '[' in flat else flat
        if ('\\(' in text or '\\[' in text or '$$' in text) and self.shows_formulas:
            parts = split_formulas(text)
            parts[::2] = map(self._escape, parts[::2])
            escaped = ''.join(parts)
        else:
            escaped = self._escape(text)
        return escaped if is_printable else flattened(escaped)

    @cached_property
    def shows_formulas(self) -> bool:
        """Whether a script of the page searches its text for TeX."""
        return _MATH_SCRIPT.search(self._html) is not None

    def _escape(self, text: str) -> str:
        text = PLACEHOLDERS.sub(' ', text).replace('\xad', '')
        if self.is_link:
            return escaped_marks(text.translate(IN_LINK))
        text = escaped_marks(text)
        # Whether it must be escaped depends on what follows.
        return text[:-1] + LAST_BRACKET if text[-1:] == ']' else text

    def line(self, node: Node) -> str:
        """Write the content in one line."""
        return finished(folded(self._text_inside(node).replace(BREAK, ' ')))

    def bold(self, node: Node) -> str:
        """Write the content in one bold line."""
        self._marks.append('**')
        text = folded(self._text_inside(node).replace(BREAK, ' '))
        self._marks.pop()
        return finished(f'{OPENED["**"]}{text}{CLOSED["**"]}') if text else ''

    def heading(self, node: Node) -> str:
        self._marks.append('**')
        self._is_heading = True
        text = self.line(node)
        self._is_heading = False
        self._marks.pop()
        return text

    def plain(self, node: Node) -> str:
        """The text of the content, without any mark."""
        pieces: list[str] = []
        self._plain(node, pieces)
        text = ''.join(pieces)
        if text.isprintable():
            return folded(text)
        return ' '.join(PLACEHOLDERS.sub(' ', text).split())

    def write(self, node: Node, pieces: list[str]) -> None:
        tag = node.tag
        if node.is_junk:
            return
        if tag == 'a':
            self._link(node, pieces)
        elif tag == 'br':
            pieces.append(BREAK)
        elif tag == 'img':
            self._image(node, pieces)
        elif tag in _EMPHASIS:
            self._emphasis(node, _EMPHASIS[tag], pieces)
        elif tag in _CODE:
            self._code(node, pieces)
        elif tag == 'sup' or tag == 'sub':
            if text := folded(self._text_inside(node).replace(BREAK, ' ')):
                pieces.append(text if node.links else f'<{tag}>{text}</{tag}>')
        elif tag == 'q':
            pieces.append('"')
            self._inside(node, pieces)
            pieces.append('"')
        elif tag == 'input':
            # Disabled checkboxes are task lists that were written in Markdown.
            if node.get('type') == 'checkbox' and node.get('disabled') is not None:
                pieces.append('[ ] ' if node.get('checked') is None else '[x] ')
        elif tag == 'math':
            self._math(node, pieces)
        elif tag == 'script':
            # The parser keeps only scripts that contain TeX.
            source = ''.join(part for part in node.children if isinstance(part, str))
            pieces.append(written(source, is_display='display' in (node.get('type') or '')))
        elif is_formula(node):
            pieces.append(written(node.source.text))
        elif tag == 'label':
            # Labels are separated by style only.
            self._inside(node, pieces)
            pieces.append(' ')
        elif tag != 'wbr':
            self._inside(node, pieces)

    def _text_inside(self, node: Node) -> str:
        # Most elements contain only text.
        if len(node.children) == 1 and isinstance(text := node.children[0], str):
            return self.escape(text)
        pieces: list[str] = []
        self._inside(node, pieces)
        return ''.join(pieces)

    def _inside(self, node: Node, pieces: list[str]) -> None:
        for child in node.children:
            if isinstance(child, str):
                pieces.append(self.escape(child))
            elif child.tag in BLOCKS:
                if not child.is_junk:
                    pieces.append(' ')
                    self._inside(child, pieces)
                    pieces.append(' ')
            else:
                self.write(child, pieces)

    def _emphasis(self, node: Node, mark: str, pieces: list[str]) -> None:
        if mark in self._marks:
            self._inside(node, pieces)
            return
        self._marks.append(mark)
        text = self._text_inside(node)
        self._marks.pop()
        stripped = text.strip().strip(BREAK).strip()
        if not stripped or (mark == '~~' and '~' in (stripped[0], stripped[-1])):
            pieces.append(text)
            return
        before, _, after = text.partition(stripped)
        first, last = OPENED[mark], CLOSED[mark]
        if BREAK in stripped:
            # A break may become a new paragraph, which would separate the mark from its end.
            parts = map(str.strip, stripped.split(BREAK))
            marked = BREAK.join(f'{first}{part}{last}' if part else '' for part in parts)
        else:
            marked = f'{first}{stripped}{last}'
        pieces += (before, marked, after)

    def _code(self, node: Node, pieces: list[str]) -> None:
        if '`' in self._marks:
            self._inside(node, pieces)
            return
        text = self.plain(node)
        if not text:
            return
        before = pieces[-1] if pieces else ''
        if before.endswith('`') and not before.endswith('\\`'):
            # Adjacent backticks would be read as one mark: code is joined, keys are separated.
            if node.tag == 'code' and '`' not in text and not before.endswith('``'):
                pieces[-1] = f'{before[:-1]}{text}`'
                return
            pieces.append(' ')
        pieces.append(code_span(text))

    def _link(self, node: Node, pieces: list[str]) -> None:
        href = node.get('href')
        if self.is_link or href is None:
            self._inside(node, pieces)
            return
        self.is_link = True
        linked = self._text_inside(node)
        self.is_link = False
        stripped = folded(linked.replace(BREAK, ' '))
        text = linked if linked.isprintable() else linked.translate(OUT_OF_LINK)
        if href.startswith('#'):
            if not any(map(str.isalnum, stripped)):
                # A pilcrow or an arrow that links to this place.
                return
            if self._is_heading or node.role == 'doc-backlink':
                pieces.append(text)
                return
        if node.names and _SELF_LINK_NAMES.search(node.names):
            return
        if not stripped:
            pieces.append(text)
            return
        address = self.resolver.absolute(href)
        if address is None:
            pieces.append(text)
            return
        before = ' ' if text[0].isspace() else ''
        after = ' ' if text[-1].isspace() else ''
        if not before and pieces:
            if pieces[-1].endswith('!'):
                # Otherwise the link would be read as an image.
                pieces[-1] = pieces[-1][:-1] + r'\!'
            elif pieces[-1].endswith(')') and '](' in pieces[-1]:
                # Adjacent links are separated by style only.
                before = ' '
        pieces.append(f'{before}[{with_brackets(stripped)}]({address}){after}')

    def _image(self, node: Node, pieces: list[str]) -> None:
        if node.names and _FORMULA_NAMES.search(node.names) and (formula := node.get('alt')):
            pieces.append(written(formula))
            return
        if node.get('width') in _PIXEL or node.get('height') in _PIXEL:
            return
        alt = ' '.join((node.get('alt') or '').split())[:1000]
        if not alt and 'icon' in node.names:
            return
        for name in _SOURCES:
            source = node.get(name)
            address = self.resolver.absolute(source) if source else None
            if address is not None:
                alt = escaped_marks(PLACEHOLDERS.sub(' ', alt).translate(IN_LINK))
                alt = alt.replace('\x0e', r'\[').replace('\x0f', r'\]')
                space = ' ' if pieces and pieces[-1].endswith(')') and '](' in pieces[-1] else ''
                pieces.append(f'{space}![{alt}]({address})')
                return

    def _math(self, node: Node, pieces: list[str]) -> None:
        is_display = node.get('display') == 'block'
        pieces.append(written(formula_of(node), is_display=is_display) or self.plain(node))

    def _plain(self, node: Node, pieces: list[str]) -> None:
        for child in node.children:
            if isinstance(child, str):
                pieces.append(child)
            elif child.tag == 'br' or child.tag in BLOCKS:
                pieces.append(' ')
                self._plain(child, pieces)
            elif not child.names or not (
                'viewcode-' in child.names
                or (child.tag == 'a' and _SELF_LINK_NAMES.search(child.names))
            ):
                self._plain(child, pieces)


def is_formula(node: Node) -> bool:
    """Whether the text inside is TeX that a script shows as a formula."""
    return (
        node.tag == 'math-renderer'
        or (node.names != '' and _FORMULA_NAMES.search(node.names) is not None)
    ) and node.source.text.lstrip().startswith(('\\(', '\\[', '$'))
