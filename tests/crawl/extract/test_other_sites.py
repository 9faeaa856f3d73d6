"""Forums, shops and blogs as Markdown, compared with golden files that a person has checked.

They are read at a URL that does not call them documentation: `tests/golden/extract/www/NAME.html`
must become `NAME.md`. Documentation is in `test_markdown.py`.
"""

from pathlib import Path

import pytest

from silkline.crawl.extract import read_html

GOLDEN = Path(__file__).parents[2] / 'golden/extract/www'
PAGES = sorted(path.stem for path in GOLDEN.glob('*.html'))


@pytest.mark.parametrize('name', PAGES)
def test_the_main_content_of_a_page_matches_its_golden_file(name: str) -> None:
    html = (GOLDEN / f'{name}.html').read_text()
    page = read_html(html, url=f'https://www.example.org/{name}.html', markdown='main')
    assert page.error is None
    assert page.markdown == (GOLDEN / f'{name}.md').read_text()


def test_there_are_golden_pages() -> None:
    assert len(PAGES) > 5
