"""Pages as files: their names, their front matter, and the files that are left alone."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path, PureWindowsPath
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silkline.cli.export.directory import MANIFEST, Export, ExportCounts, check_directory
from silkline.cli.export.files import collision_key, document, path_of
from silkline.errors import SettingsError
from silkline.queue.rows import PageRow

SITE = 'docs.example'
NAMESPACE = UUID(int=7)


def page(url: str, **facts: Any) -> PageRow:
    """A stored page; its key follows from its URL."""
    usual = {
        'url_key': uuid5(NAMESPACE, url),
        'url': url,
        'depth': 0,
        'status': 'done',
        'attempts': 1,
        'markdown': '# Text\n',
        'title': 'Title',
        'http_status': 200,
        'content_hash': 'abc',
        'extractor': 'main',
        'extractor_version': '3',
        'first_seen_at': datetime(2026, 11, 16, 9, 30, tzinfo=UTC),
    }
    return PageRow.model_validate({**dict.fromkeys(PageRow.model_fields), **usual, **facts})


def changed(before: PageRow, **facts: Any) -> PageRow:
    return before.model_copy(update=facts)


def export(directory: Path, pages: Sequence[PageRow], *, site: str = SITE) -> ExportCounts:
    written = Export(directory, site)
    written.plan((row.url_key, row.url) for row in pages)
    for row in pages:
        written.write(row)
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
def test_a_file_is_named_after_the_path_of_its_page(url: str, path: str) -> None:
    assert path_of(url, with_host=False) == path


def test_hosts_become_directories_only_if_there_are_several(directory: Path) -> None:
    one = [page('https://a.example/x'), page('https://a.example/y')]
    export(directory / 'one', one)
    export(directory / 'two', [*one, page('https://b.example:8080/x')])

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
    pages = [page(f'https://a.example/{path}') for path in paths]
    with TemporaryDirectory(prefix='silkline-') as directory:
        planned = Export(Path(directory), SITE)
        planned.plan((row.url_key, row.url) for row in pages)
    names = list(planned.paths.values())

    assert len({collision_key(name) for name in names}) == len(pages)
    for name in names:
        assert not name.startswith('/')
        assert '..' not in name.split('/')
        assert not PureWindowsPath(name).drive
        assert all(part == part.rstrip('. ') for part in name.split('/'))


def test_pages_whose_urls_differ_only_in_case_get_a_file_each(directory: Path) -> None:
    export(directory / 'out', [page('https://a.example/API'), page('https://a.example/api')])

    names = files(directory / 'out')
    assert len(names) == 2
    assert len({name.casefold() for name in names}) == 2


def test_long_names_are_shortened_and_stay_different(directory: Path) -> None:
    stem = 'https://a.example/' + 'é' * 200
    deep = 'https://a.example/' + '/'.join(f'folder-{number}' for number in range(100))
    pages = [page(f'{stem}{end}') for end in 'xy'] + [page(f'{deep}/{end}') for end in 'xy']
    export(directory / 'out', pages)

    names = files(directory / 'out')
    assert len(names) == 4
    assert max(len(part.encode()) for name in names for part in name.split('/')) < 130
    assert max(len(name.encode()) for name in names) <= 200


def test_the_front_matter_describes_the_page() -> None:
    row = page(
        'https://a.example/x',
        title='Say "hi": \u2028 # no comment',
        metadata={'description': 'Line one\nline two', 'language': 'en'},
    )
    text = document(row)

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


def test_the_front_matter_says_what_the_file_lacks() -> None:
    row = page('https://a.example/x', quality={'kept': 0.5, 'warnings': ['cut', 'code_lost']})
    facts = front_matter(document(row))

    assert (facts['kept'], facts['warnings']) == (0.5, ['cut', 'code_lost'])


def test_a_page_that_lacks_nothing_has_no_warnings_in_its_front_matter() -> None:
    row = page('https://a.example/x', quality={'kept': 1.0, 'warnings': []})
    facts = front_matter(document(row))

    assert facts['kept'] == 1
    assert 'warnings' not in facts


def test_a_page_answered_with_304_makes_the_same_file() -> None:
    row = page('https://a.example/x')

    assert document(changed(row, http_status=304)) == document(row)


def test_unknown_facts_are_left_out_of_the_front_matter() -> None:
    row = page('https://a.example/x', title=None, markdown=None, extractor=None)

    assert front_matter(document(row)).keys() == {
        'url',
        'fetched_at',
        'http_status',
        'content_hash',
        'extractor_version',
    }
    assert document(row).endswith('---\n')


def test_exporting_again_updates_what_changed_and_removes_what_is_gone(directory: Path) -> None:
    out = directory / 'out'
    first, second, third = (page(f'https://a.example/dir{n}/x') for n in range(3))

    assert export(out, [first, second, third]) == ExportCounts(new=3)
    assert export(out, [first, second, third]) == ExportCounts(unchanged=3)
    other = changed(second, markdown='# Other\n')
    assert export(out, [first, other]) == ExportCounts(unchanged=1, changed=1, removed=1)
    assert (out / 'dir1/x.md').read_text().endswith('# Other\n')
    assert not (out / 'dir2').exists()


def test_files_of_unseen_pages_stay_and_the_next_export_knows_them(
    directory: Path,
) -> None:
    out = directory / 'out'
    first, second = page('https://a.example/x'), page('https://a.example/"y"')
    export(out, [first, second])

    stopped = Export(out, SITE)
    stopped.plan([(first.url_key, first.url)])
    stopped.write(first)
    assert stopped.unwritten() == {'_y_.md': second.url}
    assert stopped.finish(unseen={'_y_.md'}) == ExportCounts(unchanged=1, unseen=1)
    assert files(out) == {'x.md', '_y_.md'}
    assert export(out, [first]) == ExportCounts(unchanged=1, removed=1)


def test_an_edited_file_is_still_known_after_a_job_that_did_not_see_its_page(
    directory: Path,
) -> None:
    out = directory / 'out'
    row = page('https://a.example/x')
    export(out, [row])
    (out / 'x.md').write_text('my notes')

    stopped = Export(out, SITE)
    stopped.plan([])
    assert stopped.unwritten() == {'x.md': None}
    stopped.finish(unseen={'x.md'})
    assert export(out, [row]) == ExportCounts(edited=1)


def test_an_edited_file_is_left_alone(directory: Path) -> None:
    out = directory / 'out'
    row = page('https://a.example/x')
    export(out, [row])
    (out / 'x.md').write_text('my notes')

    assert export(out, [changed(row, markdown='# New\n')]) == ExportCounts(edited=1)
    assert export(out, []) == ExportCounts()
    assert (out / 'x.md').read_text() == 'my notes'


def test_a_file_that_no_export_wrote_is_never_overwritten(directory: Path) -> None:
    out = directory / 'out'
    export(out, [page('https://a.example/x')])
    (out / 'Y.md').write_text('mine')
    export(out, [page('https://a.example/x'), page('https://a.example/y')])

    assert (out / 'Y.md').read_text() == 'mine'
    assert len(files(out)) == 3


def test_a_directory_with_other_files_is_refused(directory: Path) -> None:
    (directory / 'notes.txt').write_text('mine')

    with pytest.raises(SettingsError, match=r'contains other files: .* such as '):
        check_directory(directory, SITE)
    with pytest.raises(SettingsError, match='is not a directory'):
        check_directory(directory / 'notes.txt', SITE)
    with pytest.raises(SettingsError, match=r'notes\.txt is not a directory'):
        check_directory(directory / 'notes.txt/below', SITE)
    check_directory(directory / 'new', SITE)


def test_the_export_of_another_site_is_refused(directory: Path) -> None:
    out = directory / 'out'
    export(out, [page('https://a.example/x')])

    with pytest.raises(SettingsError, match=r'contains the pages of docs\.example, not of other'):
        export(out, [], site='other')
    assert files(out) == {'x.md'}


def test_an_interrupted_export_is_completed_by_the_next(directory: Path) -> None:
    out = directory / 'out'
    pages = [page(f'https://a.example/{n}') for n in range(3)]
    interrupted = Export(out, SITE)
    interrupted.plan((row.url_key, row.url) for row in pages)
    interrupted.write(pages[0])
    (out / '1.md').write_text('half')
    check_directory(out, SITE)

    assert export(out, pages) == ExportCounts(unchanged=1, changed=1, new=1)


@pytest.mark.parametrize(
    'text', ['{', '[]', '{"format": 1}', '{"format": 1, "files": {"../x": "y"}}', '{"files": {}}']
)
def test_a_damaged_manifest_is_refused(directory: Path, text: str) -> None:
    (directory / MANIFEST).write_text(text)

    with pytest.raises(SettingsError, match='choose another directory'):
        check_directory(directory, SITE)


def test_a_page_stored_after_planning_is_written_too(directory: Path) -> None:
    out = directory / 'out'
    written = Export(out, SITE)
    written.plan([])

    assert written.write(page('https://a.example/late')) == 'new'
    assert files(out) == {'late.md'}
