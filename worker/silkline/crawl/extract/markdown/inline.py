"""Write the text inside a block: emphasis, code, links, images, line breaks.

The caller joins the pieces, collapses their spaces (they hold no other white space) and then calls
`finished` of `escaping.py`, which replaces the placeholders in them.
"""

import re
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import ClassVar

from silkline.crawl.extract.facts import MAX_MARKDOWN
from silkline.crawl.extract.markdown.emphasis import CLOSED, OPENED
from silkline.crawl.extract.markdown.escaping import (
    BREAK,
    IN_LINK,
    LAST_BRACKET,
    PLACEHOLDERS,
    code_span,
    escaped_marks,
    finished,
    flattened,
    folded,
    out_of_link,
    with_brackets,
)
from silkline.crawl.extract.markdown.formulas import formula_of, split_formulas, written
from silkline.crawl.extract.markdown.links import LinkResolver
from silkline.crawl.extract.tree import BLOCKS, Node
from silkline.crawl.options import LinkStyle

REMEMBERED = 500
SHORT = 15
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
# Links that highlighters and documentation generators add to a heading, a name or an example.
_ADDED_LINKS = re.compile(
    r'headerlink|hash-link|header-anchor|anchorjs|heading-anchor|viewcode-|(?:^|\s)src(?:link)?(?:\s|$)'
    r'|(?:^|[\s_-])(?:test-arrow|copy-?(?:btn|button|code)|clipboard-?(?:btn|button))(?:\s|$)'
)
# All but letters, digits and signs without a meaning, and the same in text of several lines.
_NOT_PLAIN = bytes({*range(32), 127, *b'_*&<`[]~\\'})
_NOT_PLAIN_IN_LINES = bytes({*_NOT_PLAIN} - {*b'\t\n\r\f'})
_REFERENCE = re.compile(r'\]\[(\d+)\]')
_CLOSED = ''.join(CLOSED.values())
_BEFORE_LINK = frozenset(f'!{_CLOSED}')
_SOURCE_LINK = '\x0esrc\x0f'
_FORMULA_NAMES = re.compile(r'(?:^|[\s_-])(?:math|latex|tex|arithmatex)(?:$|[\s_-])')
_MATH_SCRIPT = re.compile(r'mathjax|katex', re.IGNORECASE)
_SOURCES = ('src', 'data-src', 'data-original', 'data-lazy-src')
_PIXEL = frozenset({'0', '1', '1px', '0px'})


class InlineWriter:
    """Writes the text of one page; `links` says what becomes of the targets of its links.

    inline      `[text](target)`
    none        the text alone, and of an image the text that describes it
    references  `[text][1]`, the targets being listed by `definitions`
    """

    def __init__(self, resolver: LinkResolver, *, html: str, links: LinkStyle = 'inline') -> None:
        self.resolver = resolver
        self.limit = MAX_MARKDOWN
        # Whether text was left out because it is longer than the limit.
        self.is_cut = False
        self.is_link = False
        self.links: LinkStyle = links
        # What was written for each link, unless that can be told from the text.
        self.linked: list[str] = []
        self._last_link = ''
        self._numbers: dict[str, int] = {}
        self._html = html
        self._marks: list[str] = []
        self._is_heading = False
        # A number in brackets would be read as one of the references.
        self._opened = r'\[' if links == 'references' else '['
        self._out_of_link = str.maketrans({'\x0e': self._opened, '\x0f': LAST_BRACKET})

    def escape(self, text: str) -> str:
        """Write text of the page so that it is read as text, with spaces as its white space."""
        # No more is kept, and ten megabytes of marks would take seconds.
        if len(text) > self.limit:
            text = text[: self.limit]
            self.is_cut = True
        if len(text) > SHORT and text.isascii():
            # Most text has no marks, and in longer ones there is no faster way to find out.
            raw = text.encode()
            if len(raw.translate(None, _NOT_PLAIN)) == len(raw):
                return text
            if len(raw.translate(None, _NOT_PLAIN_IN_LINES)) == len(raw):
                return flattened(text)
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
            if '[' not in flat:
                return flat
            return flat.translate(IN_LINK) if self.is_link else flat.replace('[', self._opened)
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
        text = text[:-1] + LAST_BRACKET if text[-1:] == ']' else text
        return text.replace('[', self._opened)

    def line(self, node: Node) -> str:
        """Write the content in one line."""
        children = node.children
        if len(children) == 1 and isinstance(text := children[0], str):
            return finished(folded(self.escape(text)))
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
        children = node.children
        if len(children) != 1 or not isinstance(text := children[0], str):
            pieces: list[str] = []
            self._plain(node, pieces)
            text = ''.join(pieces)
        if text.isprintable():
            return folded(text)
        return ' '.join(PLACEHOLDERS.sub(' ', text).split())

    def write(self, node: Node, pieces: list[str]) -> None:
        if node.is_junk:
            return
        write = self._writers.get(node.tag)
        if write is not None:
            write(self, node, pieces)
        elif node.names and is_formula(node):
            pieces.append(written(node.source.text))
        else:
            self._inside(node, pieces)

    def link(self, text: str, address: str) -> str:
        """Write a link in a complete line; brackets in its text are placeholders."""
        if self.links == 'inline':
            return f'[{with_brackets(text)}]({address})'
        if self.links == 'none':
            link = out_of_link(text)
        else:
            link = f'[{with_brackets(text, is_balanced=False)}][{self._number(address)}]'
        self.linked.append(link)
        return link

    def out_of_link(self, text: str) -> str:
        """Write a complete line that is in a link on the page, but not in Markdown."""
        return out_of_link(text, opened=self._opened)

    def definitions(self, text: str) -> str:
        """The targets that links in the text refer to, in lines of their own."""
        if not self._numbers:
            return ''
        used = {int(number) for number in _REFERENCE.findall(text)}
        return '\n'.join(
            f'[{number}]: {address}' for address, number in self._numbers.items() if number in used
        )

    def _number(self, address: str) -> int:
        return self._numbers.setdefault(address, len(self._numbers) + 1)

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

    def _emphasis(self, node: Node, pieces: list[str]) -> None:
        mark = _EMPHASIS[node.tag]
        if mark in self._marks:
            self._inside(node, pieces)
            return
        self._marks.append(mark)
        text = self._text_inside(node)
        self._marks.pop()
        stripped = text.strip()
        if BREAK in stripped:
            stripped = stripped.strip(BREAK).strip()
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
        pieces += filter(None, (before, marked, after))

    def _code(self, node: Node, pieces: list[str]) -> None:
        if node.elements and not self.is_link and (node.links or has_break(node)):
            self._code_in_parts(node, pieces)
        elif text := self.plain(node):
            self._code_span(text, pieces, is_joined=node.tag == 'code')

    def _code_span(self, text: str, pieces: list[str], *, is_joined: bool) -> None:
        before = pieces[-1] if pieces else ''
        if before.endswith('`') and not before.endswith('\\`'):
            # Adjacent backticks would be read as one mark: code is joined, keys are separated.
            if is_joined and '`' not in text and not before.endswith('``'):
                pieces[-1] = f'{before[:-1]}{text}`'
                return
            pieces.append(' ')
        pieces.append(code_span(text))

    def _code_in_parts(self, node: Node, pieces: list[str]) -> None:
        """Write each link inside code as a link, and each line as code of its own."""
        parts: list[tuple[str, str | None]] = []
        self._split_code(node, None, parts)
        for text, address in parts:
            if text == BREAK:
                pieces.append(BREAK)
                continue
            words = ' '.join(PLACEHOLDERS.sub(' ', text).split())
            if text[0].isspace():
                pieces.append(' ')
            if not words:
                continue
            if address is None:
                self._code_span(words, pieces, is_joined=node.tag == 'code')
            else:
                _separate_mark(pieces)
                pieces.append(self.link(code_span(words), address))
            if text[-1].isspace():
                pieces.append(' ')

    def _split_code(
        self, node: Node, address: str | None, parts: list[tuple[str, str | None]]
    ) -> None:
        for child in node.children:
            if isinstance(child, str):
                if parts and parts[-1][1] == address and parts[-1][0] != BREAK:
                    parts[-1] = (parts[-1][0] + child, address)
                elif child:
                    parts.append((child, address))
            elif child.tag == 'br':
                parts.append((BREAK, None))
            elif child.tag != 'a':
                if child.tag in BLOCKS:
                    parts.append((' ', None))
                if 'viewcode-' not in child.names:
                    self._split_code(child, address, parts)
            elif not (child.names and _are_added(child.names)) and child.children != ['¶']:
                href, target = child.get('href'), address
                if href and self.links != 'none' and not (self._is_heading and href[0] == '#'):
                    target = self.resolver.absolute(href)
                self._split_code(child, target, parts)

    def _link(self, node: Node, pieces: list[str]) -> None:
        href = node.source.attr('href')
        if self.is_link or href is None:
            self._inside(node, pieces)
            return
        self.is_link = True
        text = self._text_inside(node)
        self.is_link = False
        is_printable = text.isprintable()
        if is_printable:
            stripped = folded(text)
        else:
            stripped = folded(text.replace(BREAK, ' '))
            text = text.translate(self._out_of_link)
        if href.startswith('#'):
            if not any(map(str.isalnum, stripped)):
                # A pilcrow or an arrow that links to this place.
                return
            if self._is_heading or node.role == 'doc-backlink':
                pieces.append(text)
                return
        if (node.names and _are_added(node.names)) or stripped == _SOURCE_LINK:
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
            _separate_mark(pieces)
            if self._ends_with_link(pieces[-1]):
                # Adjacent links are separated by style only.
                before = ' '
        if is_printable and self.links == 'inline':
            # As most links are, without a bracket.
            pieces.append(f'{before}[{stripped}]({address}){after}')
        elif self.links == 'none':
            if text[0] == '`' and pieces and pieces[-1].endswith('`'):
                # Adjacent backticks would be read as one mark.
                before = ' '
            self.linked.append(finished(folded(text.replace(BREAK, ' '))))
            self._last_link = before + text
            pieces.append(self._last_link)
        else:
            pieces.append(f'{before}{self.link(stripped, address)}{after}')

    def _ends_with_link(self, piece: str) -> bool:
        if self.links == 'inline':
            return piece.endswith(')') and '](' in piece
        if self.links == 'none':
            return piece is self._last_link
        return piece.endswith(']') and '][' in piece

    def _image(self, node: Node, pieces: list[str]) -> None:
        if node.names and _names_formula(node.names) and (formula := node.get('alt')):
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
                if self.links == 'none':
                    pieces.append(f' {self.escape(alt)} ')
                    return
                alt = escaped_marks(PLACEHOLDERS.sub(' ', alt).translate(IN_LINK))
                alt = alt.replace('\x0e', r'\[').replace('\x0f', r'\]')
                space = ' ' if pieces and self._ends_with_link(pieces[-1]) else ''
                is_inline = self.links == 'inline'
                target = f'({address})' if is_inline else f'[{self._number(address)}]'
                pieces.append(f'{space}![{alt}]{target}')
                return

    def _small(self, node: Node, pieces: list[str]) -> None:
        if text := folded(self._text_inside(node).replace(BREAK, ' ')):
            pieces.append(text if node.links else f'<{node.tag}>{text}</{node.tag}>')

    def _quoted(self, node: Node, pieces: list[str]) -> None:
        pieces.append('"')
        self._inside(node, pieces)
        pieces.append('"')

    def _label(self, node: Node, pieces: list[str]) -> None:
        # Labels are separated by style only.
        self._inside(node, pieces)
        pieces.append(' ')

    def _break(self, node: Node, pieces: list[str]) -> None:
        pieces.append(BREAK)

    def _nothing(self, node: Node, pieces: list[str]) -> None:
        pass

    def _input(self, node: Node, pieces: list[str]) -> None:
        # Disabled checkboxes are task lists that were written in Markdown.
        if node.get('type') == 'checkbox' and node.get('disabled') is not None:
            pieces.append('[ ] ' if node.get('checked') is None else '[x] ')

    def _script(self, node: Node, pieces: list[str]) -> None:
        # The parser keeps only scripts that contain TeX.
        source = ''.join(part for part in node.children if isinstance(part, str))
        pieces.append(written(source, is_display='display' in (node.get('type') or '')))

    def _rendered(self, node: Node, pieces: list[str]) -> None:
        if is_formula(node):
            pieces.append(written(node.source.text))
        else:
            self._inside(node, pieces)

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
                'viewcode-' in child.names or (child.tag == 'a' and _are_added(child.names))
            ):
                self._plain(child, pieces)

    _writers: ClassVar[dict[str, Callable[['InlineWriter', Node, list[str]], None]]] = {
        'a': _link,
        'br': _break,
        'img': _image,
        **dict.fromkeys(_EMPHASIS, _emphasis),
        **dict.fromkeys(('code', 'kbd', 'samp', 'tt'), _code),
        'sup': _small,
        'sub': _small,
        'q': _quoted,
        'input': _input,
        'math': _math,
        'script': _script,
        'math-renderer': _rendered,
        'label': _label,
        'wbr': _nothing,
    }


def is_formula(node: Node) -> bool:
    """Whether the text inside is TeX that a script shows as a formula."""
    return (
        node.tag == 'math-renderer' or (node.names != '' and _names_formula(node.names))
    ) and node.source.text.lstrip().startswith(('\\(', '\\[', '$'))


# The same names occur again and again, on a page and on all pages of a site.
@lru_cache(maxsize=REMEMBERED)
def _names_formula(names: str) -> bool:
    return _FORMULA_NAMES.search(names) is not None


@lru_cache(maxsize=REMEMBERED)
def _are_added(names: str) -> bool:
    return _ADDED_LINKS.search(names) is not None


def _separate_mark(pieces: list[str]) -> None:
    """Escape an exclamation mark before a link, which would be read as an image."""
    if pieces and pieces[-1][-1:] in _BEFORE_LINK:
        # Marks of emphasis between the two may be dropped.
        text = pieces[-1].rstrip(_CLOSED)
        if text.endswith('!'):
            pieces[-1] = f'{text[:-1]}\\!{pieces[-1][len(text) :]}'


def has_break(node: Node) -> bool:
    return any(child.tag == 'br' or has_break(child) for child in node.elements)
