"""Pages that page hooks and extractors of plugins have touched."""

from collections.abc import Mapping
from typing import Any

import pytest

from silkline.crawl.documents.plugin_pages import MAX_METADATA_BYTES, PageHooks
from silkline.crawl.extract import EXTRACTOR_VERSION
from silkline.plugins import Page
from tests.support.documents import URL, make_reader, page_of, read, response


class Upper:
    name = 'upper'
    version = '7'

    def markdown(self, html: str, *, url: str) -> str:
        return html.upper()


class Nothing:
    def change(self, page: Page) -> None:
        pass


class NothingTwo(Nothing):
    version = '2'


def test_a_hook_may_change_a_page_and_one_that_fails_loses_nothing() -> None:
    class Shout:
        def change(self, page: Page) -> None:
            page.title = (page.title or '').upper()
            page.metadata['shouted'] = True

    class Broken:
        def change(self, page: Page) -> None:
            raise RuntimeError('no')

    reader = make_reader(hooks=PageHooks([('broken', Broken()), ('shout', Shout())]))
    page = read(reader, response('<title>Title</title><p>Words.</p>')).page
    assert page is not None
    assert page.title == 'TITLE'
    assert page.metadata['shouted'] is True
    assert page.metadata['hook_errors'] == ['broken: RuntimeError: no']


def test_a_page_is_stored_even_if_the_extractor_fails() -> None:
    class Broken:
        name = 'broken'
        version = '1'

        def markdown(self, html: str, *, url: str) -> str:
            raise RuntimeError('no')

    reader = make_reader(extractor=Broken())
    fetched = read(reader, response('<title>Title</title><p>Words.</p><a href="/x">x</a>'))
    assert fetched.page is not None
    assert fetched.page.title == 'Title'
    assert 'no' in fetched.page.metadata['extract_error']
    assert fetched.links == ['https://a.example/x']


@pytest.mark.parametrize('markdown', [None, b'bytes', ['list'], 5])
def test_a_page_is_stored_even_if_the_extractor_does_not_return_text(markdown: Any) -> None:
    class Odd(Upper):
        def markdown(self, html: str, *, url: str) -> str:
            return markdown

    page = page_of('<title>T</title>', make_reader(extractor=Odd()))
    assert (page.title, page.markdown) == ('T', None)
    assert 'TypeError' in page.metadata['extract_error']


def test_a_page_records_what_it_was_made_with() -> None:
    reader = make_reader(hooks=PageHooks([('a', Nothing()), ('b', NothingTwo())]))
    assert page_of('<p>x', reader).metadata['made_with'] == reader.made_with
    assert reader.made_with == (
        'fetcher=auto markdown=main links=inline max_markdown_chars=5000000'
        f' extractor=silkline/{EXTRACTOR_VERSION} urls=1 hook=a hook=b/2'
    )
    markdown = read(reader, response('# x', {'Content-Type': 'text/markdown'})).page
    assert markdown is not None
    assert markdown.metadata['made_with'] == reader.made_with


def test_made_with_changes_with_everything_that_shapes_a_page() -> None:
    readers = [
        make_reader(),
        make_reader(markdown='full'),
        make_reader(follow_nofollow=True),
        make_reader(keep_noindex=True),
        make_reader(fetcher='browser'),
        make_reader(extractor=Upper()),
        make_reader(hooks=PageHooks([('a', Nothing())])),
        make_reader(hooks=PageHooks([('a', NothingTwo())])),
        make_reader(hooks=PageHooks([('x' * 200, NothingTwo()), ('y' * 200, Nothing())])),
    ]
    texts = [one.made_with for one in readers]
    assert len(set(texts)) == len(texts)
    assert all(len(text) <= 300 for text in texts)
    same = make_reader('other', max_depth=3, concurrency=1)
    assert same.made_with == texts[0]


class Text(str):
    """A subclass of str, as parsers return."""

    __slots__ = ()


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {'a': value}
    return value


def cyclic() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value['itself'] = value
    return value


BROKEN: list[dict[str, Any]] = [
    {'title': 5},
    {'markdown': b'words'},
    {'links': None},
    {'links': 'https://a.example/'},
    {'links': ['/a', None]},
    {'metadata': None},
    {'metadata': ['list']},
    {'metadata': {'x': object()}},
    {'metadata': {'x': [{'y': Nothing()}]}},
    {'metadata': nested(5000)},
    {'metadata': nested(60)},
    {'metadata': cyclic()},
    {'metadata': {'x': 'x' * MAX_METADATA_BYTES}},
    {'nonsense': 1},
]


@pytest.mark.parametrize('fields', BROKEN)
def test_invalid_changes_of_a_hook_are_dropped_and_noted(fields: Mapping[str, Any]) -> None:
    class Breaking:
        def change(self, page: Page) -> None:
            page.title = 'Broken'
            page.links.append('https://a.example/broken')
            page.metadata['headings'].append('broken')
            for name, value in fields.items():
                setattr(page, name, value)

    html = '<title>T</title><h1>H</h1><p>Words.<a href="/x">x</a>'
    plain = page_of(html)
    reader = make_reader(hooks=PageHooks([('bad', Breaking()), ('ok', Nothing())]))
    page = page_of(html, reader)
    assert (page.title, page.markdown, page.links) == (plain.title, plain.markdown, plain.links)
    assert page.content_hash == plain.content_hash
    [error] = page.metadata.pop('hook_errors')
    assert error.startswith('bad: ')
    assert len(error) <= 300
    assert {**page.metadata, 'made_with': None} == {**plain.metadata, 'made_with': None}


def test_a_hook_that_tries_to_exit_loses_only_its_own_changes() -> None:
    class Ending:
        def change(self, page: Page) -> None:
            raise SystemExit(3)

    page = page_of(
        '<title>T</title>',
        make_reader(hooks=PageHooks([('a', Ending())])),
    )
    assert page.metadata['hook_errors'] == ['a: SystemExit: 3']


def test_what_a_hook_sets_is_converted_to_what_can_be_stored() -> None:
    class Setting:
        def change(self, page: Page) -> None:
            page.url = 'https://other.example/'
            page.title = Text('Title')
            page.markdown = Text('x' * 6_000_000)
            page.links += ['/relative', 'mailto:a@b.c', Text('y#part'), 'https://b.example']
            page.metadata = {'text': Text('a'), 'bad': '\udc80\0', 'list': (1, 2.5, None)}

    page = page_of(
        '<a href="/x">x</a>',
        make_reader(hooks=PageHooks([('a', Setting())])),
    )
    assert page.url == URL
    assert page.title == 'Title'
    assert page.markdown == 'x' * 5_000_000
    assert page.links == [
        'https://a.example/x',
        'https://a.example/relative',
        'https://a.example/docs/y',
        'https://b.example/',
    ]
    assert 'hook_errors' not in page.metadata
    assert page.metadata['text'] == 'a'
    assert page.metadata['list'] == [1, 2.5, None]


def test_a_hook_cannot_set_the_fields_that_the_crawl_fills_in() -> None:
    class Claiming:
        def change(self, page: Page) -> None:
            page.content_hash = page.etag = page.last_modified = 'claimed'
            page.extractor = page.extractor_version = 'claimed'
            page.http_status = 999
            page.quality = None

    hooks = PageHooks([('a', Claiming())])
    page = page_of('<p>Words.', make_reader(hooks=hooks))
    plain = page_of('<p>Words.')
    for one in (page, plain):
        del one.metadata['made_with']
    assert page == plain


class Long:
    name = 'long'
    version = '1'

    def markdown(self, html: str, *, url: str) -> str:
        return 'x' * 4000


def test_markdown_of_an_extractor_that_is_too_long_is_cut_and_says_so() -> None:
    page = page_of('<p>Words.', make_reader(extractor=Long(), max_markdown_chars=1000))
    assert page.markdown == 'x' * 1000
    assert page.quality is not None
    assert (page.quality.kept, page.quality.warnings) == (0.25, ('cut',))


def test_the_quality_of_what_an_extractor_of_a_plugin_made_is_unknown() -> None:
    assert page_of('<p>Words.', make_reader(extractor=Upper())).quality is None


def test_markdown_of_a_hook_that_is_too_long_is_cut_and_says_so() -> None:
    class Lengthening:
        def change(self, page: Page) -> None:
            page.markdown = 'x' * 4000

    hooks = PageHooks([('a', Lengthening()), ('b', Nothing())])
    page = page_of('<p>Words.', make_reader(hooks=hooks, max_markdown_chars=1000))
    assert page.markdown == 'x' * 1000
    assert page.quality is not None
    assert page.quality.is_cut


def test_a_hook_sees_the_quality_of_a_page_and_leaves_it_as_it_is() -> None:
    seen: list[object] = []

    class Looking:
        def change(self, page: Page) -> None:
            seen.append(page.quality)
            page.title = 'Other'

    text = response('x' * 2000, {'Content-Type': 'text/plain'})
    reader = make_reader(hooks=PageHooks([('a', Looking())]), max_markdown_chars=1000)
    page = read(reader, text).page
    assert page is not None
    assert page.title == 'Other'
    assert seen == [page.quality]
    assert page.quality is not None
