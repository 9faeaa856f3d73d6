"""Pages that scripts draw are told from pages that are only short."""

import time

import pytest

from silkline.crawl.extract.scripted import needs_browser

SCRIPT = '<script src="/main.js"></script>'
DRAWN = {
    'an empty container': f'<body><div id="root"></div>{SCRIPT}',
    'an element that scripts define': f'<body><my-app>\n</my-app>{SCRIPT}',
    'a notice for browsers without scripts': (
        f'<body><noscript>Please enable <b>JavaScript</b>.</noscript><p>Loading</p>{SCRIPT}'
    ),
    'a container behind an inline script': (
        f'<body><script>document.write("<img>")</script><div></div>{SCRIPT}'
    ),
}
SHORT = {
    'no script': '<body><div id="root"></div>',
    'no container': f'<body><p>It works!</p>{SCRIPT}',
    'a picture': f'<body><img src="a.png"><div class="clear"></div>{SCRIPT}',
    'a form': f'<body><form><input></form><div></div>{SCRIPT}',
    'a container only in a script': '<body><p>It works!</p><script>"<div></div>"</script>',
    'a tracker in noscript': f'<body><p>Hi</p><noscript><img src="t.gif"></noscript>{SCRIPT}',
}


@pytest.mark.parametrize('html', DRAWN.values(), ids=DRAWN)
def test_a_page_that_scripts_draw_needs_a_browser(html: str) -> None:
    assert needs_browser(html, text_characters=9)


@pytest.mark.parametrize('html', SHORT.values(), ids=SHORT)
def test_a_short_page_needs_no_browser(html: str) -> None:
    assert not needs_browser(html, text_characters=9)


@pytest.mark.parametrize('html', DRAWN.values(), ids=DRAWN)
def test_a_page_with_text_needs_no_browser_whatever_its_scripts_add(html: str) -> None:
    assert not needs_browser(html, text_characters=2000)


@pytest.mark.parametrize(
    'piece',
    ['<noscript>', '<noscript ', '<div>', '<div ', '<a-b', '<a-b ', '</div>', '<script>', '< '],
)
def test_a_hostile_page_takes_no_longer_than_its_length(piece: str) -> None:
    started_at = time.process_time()
    needs_browser(SCRIPT + piece * 200_000, text_characters=0)
    needs_browser(SCRIPT + '<div' + piece.strip('<>') * 200_000, text_characters=0)
    assert time.process_time() - started_at < 2
