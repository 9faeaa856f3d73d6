"""Pages as files: their names, their front matter, and whose files are left alone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path, PureWindowsPath
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st
from silkline.cli.export import LIST, Counts, Export, document, path_of, refuse_foreign, sameness
from silkline.errors import SettingsError

SITE = 'docs.example'
NAMESPACE = UUID(int=7)


@dataclass(frozen=True, slots=True)
class Page:
    url: str
    markdown: str | None = '# Text\n'
    title: str | None = 'Title'
    http_status: int | None = 200
    content_hash: str | None = 'abc'
    extractor: str | None = 'main'
    extractor_version: str | None = '3'
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    first_seen_at: datetime | None = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)

    @property
    def url_key(self) -> UUID:
        return uuid5(NAMESPACE, self.url)


def export(directory: Path, pages: Sequence[Page], *, site: str = SITE) -> Counts:
    written = Export(directory, site)
    written.plan((page.url_key, page.url) for page in pages)
    for page in pages:
        written.write(page)
    return written.finish()


def files(directory: Path) -> set[str]:
    found = (path.relative_to(directory).as_posix() for path in directory.rglob('*.md'))
    return set(found)


def front_matter(text: str) -> dict[str, Any]:
    lines = text.split('---\n')[1].splitlines()
    return {name: json.loads(value) for name, _, value in (line.partition(': ') for line in lines)}


@pytest.mark.parametrize(
    ('url', 'path'),
    [
        ('https://a.example', 'index.md'),
        ('https://a.example/', 'index.md'),
        ('https://a.example/guide', 'guide.md'),
        ('https://a.example/guide/', 'guide/index.md'),
        ('https://a.example/guide/start.html', 'guide/start.md'),
        ('https://a.example/README.md', 'README.md'),
        ('https://a.example/v1.2', 'v1.2.md'),
        ('https://a.example/list?page=2&sort=up', 'list_page=2&sort=up.md'),
        ('https://a.example/%E6%97%A5%E6%9C%AC', '日本.md'),
        ('https://a.example//a///b', 'a/b.md'),
        ('https://a.example/../../etc/passwd', 'etc/passwd.md'),
        ('https://a.example/%2e%2e/%2e%2e/x', '_/_/x.md'),
        ('https://a.example/..%2f..%2fx', '_._.._x.md'),
        ('https://a.example/a%5C..%5Cb', 'a_.._b.md'),
        ('https://a.example/a%00b%0ac', 'a_b_c.md'),
        ('https://a.example/con/aux.html', 'con_/aux_.md'),
        ('https://a.example/.git/config', '_git/config.md'),
        ('https://a.example/x.md/y', 'x.md_/y.md'),
    ],
)
def test_a_file_is_named_for_the_path_of_its_page(url: str, path: str) -> None:
    assert path_of(url, with_host=False) == path


def test_the_host_is_the_top_directory_only_when_there_are_several(directory: Path) -> None:
    one = [Page('https://a.example/x'), Page('https://a.example/y')]
    export(directory / 'one', one)
    export(directory / 'two', [*one, Page('https://b.example:8080/x')])

    assert files(directory / 'one') == {'x.md', 'y.md'}
    assert files(directory / 'two') == {'a.example/x.md', 'a.example/y.md', 'b.example_8080/x.md'}


@given(
    st.lists(
        st.text(st.sampled_from('aAbBäÄ.%2/\\:?é\u0301 -_~*'), max_size=30),
        max_size=30,
        unique=True,
    )
)
def test_no_two_pages_share_a_file_on_any_file_system(paths: list[str]) -> None:
    pages = [Page(f'https://a.example/{path}') for path in paths]
    with TemporaryDirectory(prefix='silkline-') as directory:
        planned = Export(Path(directory), SITE)
        planned.plan((page.url_key, page.url) for page in pages)
    names = list(planned.paths.values())

    assert len({sameness(name) for name in names}) == len(pages)
    for name in names:
        assert not name.startswith('/')
        assert '..' not in name.split('/')
        assert not PureWindowsPath(name).drive
        assert all(part == part.rstrip('. ') for part in name.split('/'))


def test_pages_that_differ_in_case_only_get_a_file_each(directory: Path) -> None:
    export(directory / 'out', [Page('https://a.example/API'), Page('https://a.example/api')])

    names = files(directory / 'out')
    assert len(names) == 2
    assert len({name.casefold() for name in names}) == 2


def test_long_names_are_cut_and_stay_apart(directory: Path) -> None:
    stem = 'https://a.example/' + 'é' * 200
    deep = 'https://a.example/' + '/'.join(f'folder-{number}' for number in range(100))
    pages = [Page(f'{stem}{end}') for end in 'xy'] + [Page(f'{deep}/{end}') for end in 'xy']
    export(directory / 'out', pages)

    names = files(directory / 'out')
    assert len(names) == 4
    assert max(len(part.encode()) for name in names for part in name.split('/')) < 130
    assert max(len(name.encode()) for name in names) <= 200


def test_the_front_matter_says_where_a_page_is_from() -> None:
    page = Page(
        'https://a.example/x',
        title='Say "hi": \u2028 # no comment',
        metadata={'description': 'Line one\nline two', 'language': 'en'},
    )
    text = document(page)

    assert front_matter(text) == {
        'url': 'https://a.example/x',
        'title': 'Say "hi": \u2028 # no comment',
        'description': 'Line one\nline two',
        'language': 'en',
        'fetched_at': '2026-11-16T09:30:00Z',
        'http_status': 200,
        'content_hash': 'abc',
        'extractor': 'main',
        'extractor_version': '3',
    }
    assert '\u2028' not in text
    assert text.endswith('---\n\n# Text\n')


def test_a_page_that_is_as_it_was_makes_the_same_file() -> None:
    page = Page('https://a.example/x')

    assert document(replace(page, http_status=304)) == document(page)


def test_what_is_not_known_is_left_out_of_the_front_matter() -> None:
    page = Page('https://a.example/x', title=None, markdown=None, extractor=None)

    assert front_matter(document(page)).keys() == {
        'url',
        'fetched_at',
        'http_status',
        'content_hash',
        'extractor_version',
    }
    assert document(page).endswith('---\n')


def test_exporting_again_updates_what_changed_and_removes_what_is_gone(directory: Path) -> None:
    out = directory / 'out'
    first, second, third = (Page(f'https://a.example/dir{n}/x') for n in range(3))

    assert export(out, [first, second, third]) == Counts(new=3)
    assert export(out, [first, second, third]) == Counts(unchanged=3)
    changed = replace(second, markdown='# Other\n')
    assert export(out, [first, changed]) == Counts(unchanged=1, changed=1, removed=1)
    assert (out / 'dir1/x.md').read_text().endswith('# Other\n')
    assert not (out / 'dir2').exists()


def test_files_of_pages_that_were_not_seen_stay_and_are_known_to_the_next_export(
    directory: Path,
) -> None:
    out = directory / 'out'
    first, second = Page('https://a.example/x'), Page('https://a.example/"y"')
    export(out, [first, second])

    stopped = Export(out, SITE)
    stopped.plan([(first.url_key, first.url)])
    stopped.write(first)
    assert stopped.unwritten() == {'_y_.md': second.url}
    assert stopped.finish(unseen={'_y_.md'}) == Counts(unchanged=1, unseen=1)
    assert files(out) == {'x.md', '_y_.md'}
    assert export(out, [first]) == Counts(unchanged=1, removed=1)


def test_a_file_that_was_changed_by_hand_is_still_known_after_a_job_that_did_not_see_its_page(
    directory: Path,
) -> None:
    out = directory / 'out'
    page = Page('https://a.example/x')
    export(out, [page])
    (out / 'x.md').write_text('my notes')

    stopped = Export(out, SITE)
    stopped.plan([])
    assert stopped.unwritten() == {'x.md': None}
    stopped.finish(unseen={'x.md'})
    assert export(out, [page]) == Counts(kept=1)


def test_a_file_that_was_changed_by_hand_is_left_alone(directory: Path) -> None:
    out = directory / 'out'
    page = Page('https://a.example/x')
    export(out, [page])
    (out / 'x.md').write_text('my notes')

    assert export(out, [replace(page, markdown='# New\n')]) == Counts(kept=1)
    assert export(out, []) == Counts()
    assert (out / 'x.md').read_text() == 'my notes'


def test_a_file_of_somebody_else_is_never_overwritten(directory: Path) -> None:
    out = directory / 'out'
    export(out, [Page('https://a.example/x')])
    (out / 'Y.md').write_text('mine')
    export(out, [Page('https://a.example/x'), Page('https://a.example/y')])

    assert (out / 'Y.md').read_text() == 'mine'
    assert len(files(out)) == 3


def test_a_directory_with_other_files_is_refused(directory: Path) -> None:
    (directory / 'notes.txt').write_text('mine')

    with pytest.raises(SettingsError, match=r'has other files in it; .* such as '):
        refuse_foreign(directory, SITE)
    with pytest.raises(SettingsError, match='is no directory'):
        refuse_foreign(directory / 'notes.txt', SITE)
    with pytest.raises(SettingsError, match=r'notes\.txt is no directory'):
        refuse_foreign(directory / 'notes.txt/below', SITE)
    refuse_foreign(directory / 'new', SITE)


def test_the_export_of_another_site_is_refused(directory: Path) -> None:
    out = directory / 'out'
    export(out, [Page('https://a.example/x')])

    with pytest.raises(SettingsError, match=r'holds the pages of docs\.example, not of other'):
        export(out, [], site='other')
    assert files(out) == {'x.md'}


def test_an_export_that_was_cut_off_is_taken_up_by_the_next(directory: Path) -> None:
    out = directory / 'out'
    pages = [Page(f'https://a.example/{n}') for n in range(3)]
    cut_off = Export(out, SITE)
    cut_off.plan((page.url_key, page.url) for page in pages)
    cut_off.write(pages[0])
    (out / '1.md').write_text('half')
    refuse_foreign(out, SITE)

    assert export(out, pages) == Counts(unchanged=1, changed=1, new=1)


@pytest.mark.parametrize(
    'text', ['{', '[]', '{"format": 1}', '{"format": 1, "files": {"../x": "y"}}', '{"files": {}}']
)
def test_a_damaged_list_of_files_is_refused(directory: Path, text: str) -> None:
    (directory / LIST).write_text(text)

    with pytest.raises(SettingsError, match='name another directory'):
        refuse_foreign(directory, SITE)


def test_a_page_that_came_after_the_names_were_given_is_written_too(directory: Path) -> None:
    out = directory / 'out'
    written = Export(out, SITE)
    written.plan([])

    assert written.write(Page('https://a.example/late')) == 'new'
    assert files(out) == {'late.md'}
