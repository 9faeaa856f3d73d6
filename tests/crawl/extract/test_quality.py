"""What a page says about its own Markdown: how much was kept, and what to warn of."""

from silkline.crawl.extract import Facts, read_html
from silkline.protocol import Quality

PROSE = '<p>This is a sentence that is long enough to be taken for prose, with some words.</p>'


def quality_of(body: str, *, markdown: str = 'main', limit: int = 100_000) -> Quality:
    page = read(body, markdown=markdown, limit=limit)
    assert page.quality is not None
    return page.quality


def read(body: str, *, markdown: str = 'main', limit: int = 100_000) -> Facts:
    html = f'<html><head><title>Looms</title></head><body>{body}</body></html>'
    mode = 'full' if markdown == 'full' else 'main'
    page = read_html(html, url='https://example.org/looms', markdown=mode, max_markdown=limit)
    assert page.error is None
    return page


def test_a_page_that_was_kept_whole_says_so_without_a_warning() -> None:
    quality = quality_of(f'<main><h1>Looms</h1>{PROSE * 5}<h2>Parts</h2><pre>warp</pre></main>')
    assert quality.kept == 1.0
    assert (quality.headings, quality.headings_kept) == (2, 2)
    assert (quality.code_blocks, quality.code_blocks_kept) == (1, 1)
    assert quality.warnings == ()


def test_navigation_is_visible_text_that_was_not_kept() -> None:
    menu = ''.join(f'<a href="/{n}">Chapter {n}</a>' for n in range(50))
    quality = quality_of(f'<nav>{menu}</nav><main><h1>Looms</h1>{PROSE * 5}</main>')
    assert 0.3 < quality.kept < 0.7
    assert quality.warnings == ()


def test_headings_of_other_pages_do_not_count() -> None:
    teasers = ''.join(f'<div><h3><a href="/{n}">Story {n}</a></h3></div>' for n in range(20))
    quality = quality_of(f'<main><h1>Looms</h1>{PROSE * 5}</main><aside>{teasers}</aside>')
    assert quality.headings == quality.headings_kept == 1


def test_headings_that_lead_back_to_the_contents_count() -> None:
    parts = ''.join(
        f'<h2><a class="toc-backref" href="#id{n}">Part {n}</a></h2>{PROSE}' for n in range(3)
    )
    quality = quality_of(f'<main><h1>Looms</h1>{parts}</main>')
    assert quality.headings == quality.headings_kept == 4


def test_hidden_text_is_not_visible_text() -> None:
    hidden = f'<div style="display:none">{PROSE * 3}</div>'
    assert quality_of(f'<main><h1>Looms</h1>{PROSE * 5}</main>{hidden}').kept == 1.0


def test_a_page_that_is_cut_is_warned_of() -> None:
    page = read(f'<main><h1>Looms</h1>{PROSE * 100}</main>', limit=2_000)
    assert page.quality is not None
    assert page.quality.is_cut
    assert 'cut' in page.quality.warnings
    assert page.markdown is not None
    assert len(page.markdown) <= 2_000


def test_a_page_that_scripts_draw_is_warned_of() -> None:
    quality = quality_of('<div id="app"></div><script src="/app.js"></script>')
    assert quality.needs_browser
    assert 'needs_browser' in quality.warnings


def test_a_page_of_which_nothing_is_kept_is_warned_of() -> None:
    quality = quality_of('<footer><p>Imprint</p><p>Terms of use</p></footer>')
    assert quality.kept == 0
    assert quality.warnings == ('nothing_kept',)


def test_next_to_nothing_of_a_large_page_is_warned_of() -> None:
    data = f'<script>window.data = "{"x" * 300_000}"</script>'
    quality = quality_of(f'<h1>Looms</h1><p>Loading the best looms for you.</p>{data}')
    assert 'little_kept' in quality.warnings


def test_a_full_page_is_compared_with_all_of_the_page() -> None:
    menu = ''.join(f'<a href="/{n}">Chapter {n}</a>' for n in range(50))
    quality = quality_of(f'<nav>{menu}</nav><h1>Looms</h1>{PROSE * 5}', markdown='full')
    assert quality.kept == 1.0
    assert quality.warnings == ()


def test_a_page_of_480_000_tags_is_read_with_its_structure() -> None:
    rows = '<tr><td>one</td><td>two</td></tr>' * 80_000
    page = read(f'<main><h1>Looms</h1><table>{rows}</table></main>', limit=5_000_000)
    assert page.markdown is not None
    assert page.markdown.startswith('# Looms\n\n|')
    assert page.markdown.count('| one | two |') == 80_000


def test_a_page_that_is_read_as_plain_text_is_warned_of() -> None:
    html = f'<main><h1>Looms</h1>{"<i>x</i>" * 500_000}</main>'
    page = read_html(html, url='https://example.org/', markdown='main')
    assert page.error == 'read as plain text: 1000004 tags'
    assert page.quality is not None
    assert 'headings_lost' in page.quality.warnings
