"""Formulas as TeX between dollars, each one once, however the page shows them.

Finds the TeX that KaTeX, MediaWiki and others leave in MathML, the sources that MathJax reads
(`\\(…\\)`, `\\[…\\]`, `<script type="math/tex">`), and converts plain MathML to TeX.
"""

import re

from silkline.crawl.extract.tree import Node

_STYLE = re.compile(r'\{\\(?:display|text)style\s+(.*)\}', re.DOTALL)
_DELIMITED = re.compile(r'\\\((.*)\\\)|\\\[(.*)\\\]|\$\$(.*)\$\$|\$(.*)\$', re.DOTALL)
# Without a delimiter inside, so that one without its end costs only the text up to the next one.
_INSIDE = r'(?:[^\\$]++|\\[^()\[\]]|\$(?!\$))++'
_IN_TEXT = re.compile(rf'\\\({_INSIDE}\\\)|\\\[{_INSIDE}\\\]|\$\${_INSIDE}\$\$')
# White space has no meaning in a formula, so it can prevent a tag or a link.
_TAG_OR_LINK = re.compile(r'[<\]](?=[a-zA-Z/!?(\[:])')
_BETWEEN = {
    'msup': '{0}^{{{1}}}',
    'msub': '{0}_{{{1}}}',
    'msubsup': '{0}_{{{1}}}^{{{2}}}',
    'munder': '{0}_{{{1}}}',
    'mover': '{0}^{{{1}}}',
    'munderover': '{0}_{{{1}}}^{{{2}}}',
    'mfrac': '\\frac{{{0}}}{{{1}}}',
    'mroot': '\\sqrt[{1}]{{{0}}}',
}


def written(tex: str, *, is_display: bool = False) -> str:
    """Write TeX in one line, without the delimiters it may have; '' if there is none."""
    tex = ' '.join(tex.split())
    if (found := _DELIMITED.fullmatch(tex)) is not None:
        is_display = is_display or found[2] is not None or found[3] is not None
        tex = next(part for part in found.groups() if part is not None).strip()
    if (found := _STYLE.fullmatch(tex)) is not None:
        tex = found[1].strip()
    if not tex:
        return ''
    tex = _TAG_OR_LINK.sub(r'\g<0> ', tex.replace('`', "'"))
    return f'$${tex}$$' if is_display else f'${tex}$'


def split_formulas(text: str) -> list[str]:
    """Split text at the formulas that MathJax would find; every second part is a formula."""
    parts: list[str] = []
    at = 0
    for found in _IN_TEXT.finditer(text):
        parts += (text[at : found.start()], written(found[0]))
        at = found.end()
    parts.append(text[at:])
    return parts


def formula_of(node: Node) -> str:
    """The TeX of a <math> element, from its source if there is one."""
    source = node.get('alttext')
    stack: list[Node] = [node]
    while stack and source is None:
        part = stack.pop()
        if part.tag == 'annotation' and part.get('encoding') == 'application/x-tex':
            source = part.source.text
        stack += part.elements
    return _tex(node) if source is None else source


def _tex(node: Node) -> str:
    if node.tag in ('annotation', 'annotation-xml'):
        return ''
    parts = [_tex(child) if isinstance(child, Node) else child.strip() for child in node.children]
    form = _BETWEEN.get(node.tag)
    if form is not None:
        parts = [part for part in parts if part]
        if len(parts) == len(set(re.findall(r'\{(\d)\}', form))):
            return form.format(*parts)
    text = ' '.join(part for part in parts if part)
    if node.tag == 'msqrt':
        return f'\\sqrt{{{text}}}'
    if node.tag == 'mtext':
        return f'\\text{{{text}}}'
    return text
