"""Random soup of tags: reading it raises nothing, reports nothing, and keeps the words."""

from hypothesis import given, settings
from hypothesis import strategies as st

from worker.crawl.extract import read_html

TAGS = (
    'a b i p br hr h1 h2 ul ol li dl dt dd table thead tbody tr td th pre code blockquote div span'
    ' img input details summary section article main aside nav header footer form figure math sup'
    ' q label body html svg title caption select option template font'.split()
)
ATTRIBUTES = (
    '|class="admonition note"|class="sidebar"|class="lang"|hidden|href="../x"|href="#a"|role="main"'
    '|colspan=3 rowspan=2|start=7|src=x alt=y|class="highlight-python sig"|style="display:none"'
    '|type=checkbox disabled'.split('|')
)
TEXTS = ['word ', '*_`[](', '|', '\n', '  ', '# ', '1. ', '&lt;', '中文', '<!--', '\x01']
PIECES = st.one_of(
    st.builds('<{} {}>'.format, st.sampled_from(TAGS), st.sampled_from(ATTRIBUTES)),
    st.builds('</{}>'.format, st.sampled_from(TAGS)),
    st.sampled_from(TEXTS),
)


@given(st.lists(PIECES, max_size=60).map(''.join))
@settings(max_examples=300, deadline=None)
def test_no_soup_of_tags_is_an_error(html: str) -> None:
    for mode in ('main', 'full'):
        page = read_html(html, url='https://example.org/a/', markdown=mode)
        assert page.error is None
        assert page.markdown is not None
        assert '\x01' not in page.markdown.split('```')[0]


WORDS = st.text('abcdefgh', min_size=1, max_size=8)
# Elements that hold text and take nothing away from it.
KEEPING = st.sampled_from('b i em p div span section h2 h3 li ul ol blockquote td dd sup q'.split())


@given(st.lists(st.tuples(KEEPING, WORDS), min_size=1, max_size=30))
@settings(max_examples=200, deadline=None)
def test_a_whole_page_loses_no_word(pieces: list[tuple[str, str]]) -> None:
    html = ''.join(f'<{tag}>{word} </{tag}>' for tag, word in pieces)
    page = read_html(f'<body>{html}', url='https://example.org/a/', markdown='full')
    assert page.markdown is not None
    for _, word in pieces:
        assert word in page.markdown
