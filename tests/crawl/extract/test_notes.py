"""Notes as quotes, whatever generator has written them."""

import pytest

from silkline.crawl.extract import read_html

PROSE = '<p>This is a sentence that is long enough to be taken for prose, with some words.</p>'


def markdown_of(body: str) -> str:
    """The Markdown of a page after its first two blocks, a heading and a paragraph."""
    html = f'<html><body><main><h1>Notes</h1>{PROSE}{body}</main></body></html>'
    page = read_html(html, url='https://example.org/a/b', markdown='main')
    assert page.error is None
    assert page.markdown is not None
    return page.markdown.split('\n\n', 2)[2].rstrip('\n')


@pytest.mark.parametrize(
    'html',
    [
        '<div class="admonition note"><p class="admonition-title">Note</p><p>Text.</p></div>',
        # DocBook with icons.
        '<div class="note"><table border="0" summary="Note"><tr><td rowspan="2" width="25">'
        '<img alt="[Note]" src="note.png"></td><th align="left">Note</th></tr>'
        '<tr><td><p>Text.</p></td></tr></table></div>',
        # AsciiDoc, with titles, icons and fonts.
        '<div class="admonitionblock"><table><tr><td class="icon"><div class="title">Note</div>'
        '</td><td class="content">Text.</td></tr></table></div>',
        '<div class="admonitionblock note"><table><tr><td class="icon"><i class="fa icon-note"'
        ' title="Note"></i></td><td class="content"><div class="paragraph"><p>Text.</p></div></td>'
        '</tr></table></div>',
        '<div class="admonitionblock"><table><tr><td class="icon"><img src="n.png" alt="Note"></td>'
        '<td class="content">Text.</td></tr></table></div>',
        # Doxygen.
        '<dl class="section note"><dt>Note</dt><dd>Text.</dd></dl>',
        '<div class="note">Text.</div>',
        '<p class="note">Text.</p>',
        '<aside class="note"><p>Text.</p></aside>',
        '<div class="note note note_note"><span class="note__title">Note:</span> Text.</div>',
        '<blockquote class="note"><p>Text.</p></blockquote>',
    ],
)
def test_a_note_is_a_quote_below_its_kind(html: str) -> None:
    assert markdown_of(html) == '> **Note**\n>\n> Text.'


@pytest.mark.parametrize(
    ('html', 'markdown'),
    [
        # DocBook, Apache, MDN: a heading stays one.
        (
            '<div class="tip"><h3 class="title">Tip</h3><p>Text.</p></div>',
            '> ### Tip\n>\n> Text.',
        ),
        (
            '<div class="warning"><h3>Mind the gap</h3><p>Text.</p></div>',
            '> ### Mind the gap\n>\n> Text.',
        ),
        ('<div class="notecard note"><h4>Note</h4><p>Text.</p></div>', '> #### Note\n>\n> Text.'),
        # MkDocs.
        (
            '<details class="example"><summary>Try it</summary><p>Text.</p></details>',
            '> **Try it**\n>\n> Text.',
        ),
        # rustdoc.
        ('<div class="warning"><p>Text.</p></div>', '> **Warning**\n>\n> Text.'),
        # PHP, Texinfo: the text begins with the kind.
        (
            '<div class="caution"><p><strong class="caution">Caution</strong>: Text.</p></div>',
            '> **Caution**: Text.',
        ),
        (
            '<blockquote class="quotation"><p><b>Note:</b> Text.</p></blockquote>',
            '> **Note:** Text.',
        ),
        ('<div class="important">Important: Text.</div>', '> Important: Text.'),
    ],
)
def test_a_note_keeps_its_own_title(html: str, markdown: str) -> None:
    assert markdown_of(html) == markdown


@pytest.mark.parametrize(
    'html',
    [
        '<div class="info"><p>Text.</p></div>',
        '<div class="section" id="note"><p>Text.</p></div>',
        '<div id="warning"><p>Text.</p></div>',
        '<details><summary>Text.</summary></details>',
        '<div class="error"><p>Text.</p></div>',
    ],
)
def test_a_block_is_not_a_note_by_its_id_or_by_a_word_of_many_meanings(html: str) -> None:
    assert markdown_of(html).strip('*') == 'Text.'


def test_a_part_of_the_page_with_headings_is_not_a_note() -> None:
    html = '<div class="note"><h2>One</h2><p>Text.</p><h2>Two</h2><p>Text.</p></div>'
    assert markdown_of(html) == '## One\n\nText.\n\n## Two\n\nText.'


def test_a_block_of_thousands_of_elements_is_not_a_note() -> None:
    text = markdown_of(f'<div class="note"><h2>One</h2>{PROSE * 2_000}</div>')
    assert text.startswith('## One\n\nThis is')


def test_a_note_in_a_table_is_not_a_quote_because_cells_hold_none() -> None:
    text = markdown_of(
        '<table><tr><th>A</th><th>B</th></tr>'
        '<tr><td>a</td><td><div class="note"><p>Text.</p></div></td></tr></table>'
    )
    assert text.endswith('| a | **Note**<br>Text. |')


def test_a_note_holds_lists_and_code() -> None:
    text = markdown_of('<div class="tip"><p>Text:</p><ul><li>one</li></ul><pre>a\nb</pre></div>')
    assert text == '> **Tip**\n>\n> Text:\n>\n> - one\n>\n> ```\n> a\n> b\n> ```'
