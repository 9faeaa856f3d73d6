"""What the documents say about the repository is true: links, paths, commands, the tree of folders.

`test_contract.py` compares the reference with the code, `test_tutorial.py` runs the tutorial.
"""

import os
import re
import secrets
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from typer.core import TyperGroup
from typer.main import get_command

from silkline.cli.main import app
from tests.support.servers import ROOT

DOCS = sorted((ROOT / 'docs').rglob('*.md'))
PAGES = [*sorted(ROOT.glob('*.md')), ROOT / 'llms.txt', *DOCS]
ARCHITECTURE = (ROOT / 'docs/explanation/architecture.md').read_text()
CODE = ('worker', 'local', 'supabase', 'benchmarks', 'examples', 'scripts', 'tests', '.github')
NOT_OURS = {'node_modules', '__pycache__', 'golden', '.temp'}
LINK = re.compile(r'\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)')
# Of our own folders, in documents: `worker/silkline/crawl/urls.py`, `tests/fidelity/`.
PATH = re.compile(r'`((?:benchmarks|docs|examples|local|scripts|supabase|tests|worker)/[\w./*-]*)`')


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def without_code(text: str) -> str:
    return re.sub(r'^```.*?^```$', '', text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The headings of a page, as GitHub makes anchors of them."""
    headings = re.findall(r'^#+ (.+)$', without_code(page.read_text()), re.MULTILINE)
    return {re.sub(r'[^\w -]', '', heading.lower()).replace(' ', '-') for heading in headings}


@pytest.mark.parametrize('page', PAGES, ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    text = re.sub(r'`[^`\n]+`', '', without_code(page.read_text()))
    for path, anchor in LINK.findall(text):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        if anchor and target.suffix == '.md':
            assert anchor in anchors(target), f'{path}#{anchor}'


@pytest.mark.parametrize('page', PAGES, ids=name_of)
def test_every_path_that_a_document_names_exists(page: Path) -> None:
    for path in PATH.findall(page.read_text()):
        assert any(ROOT.glob(path.rstrip('/'))), path


def files_of_the_code() -> Iterator[Path]:
    yield from (ROOT / name for name in ('Makefile', 'pyproject.toml', '.env.example'))
    for folder in CODE:
        for path in (ROOT / folder).rglob('*'):
            if path.is_file() and not NOT_OURS & set(path.relative_to(ROOT).parts):
                yield path


def test_every_document_that_the_code_names_exists() -> None:
    missing = [
        f'{name_of(path)}: {named}'
        for path in files_of_the_code()
        for named in re.findall(r'(?<![\w./-])docs/[\w./-]*\w\.(?:md|svg)', path.read_text())
        if not (ROOT / named).exists()
    ]

    assert missing == []


def commands_in(text: str) -> Iterator[str]:
    """Code in a document, line by line: spans, indented blocks, and blocks of shell."""
    yield from re.findall(r'`([^`\n]+)`', without_code(text))
    yield from re.findall(r'^ {4}(\S.*)$', without_code(text), re.MULTILINE)
    for block in re.findall(r'^```sh\n(.*?)^```$', text, re.MULTILINE | re.DOTALL):
        yield from block.splitlines()


def test_every_make_target_that_a_document_names_exists() -> None:
    targets = set(re.findall(r'^([a-z][a-z-]*):', (ROOT / 'Makefile').read_text(), re.MULTILINE))
    named = {
        target
        for page in PAGES
        for command in commands_in(page.read_text())
        for target in re.findall(r'(?:^|&& )make ([a-z][a-z-]*)', command)
    }

    assert len(named) > 5
    assert named - targets == set()


def test_every_command_and_option_that_a_document_names_exists() -> None:
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    wrong: list[str] = []
    for page in PAGES:
        for line in commands_in(page.read_text()):
            for command, rest in re.findall(r'\bsilkline ([a-z]+)\b([^|&;#]*)', line):
                known = group.commands.get(command)
                options = (
                    {option for one in known.params for option in one.opts} if known else set()
                )
                if not known or set(re.findall(r'(?<=\s)--?[a-z][a-z-]*', rest)) - options:
                    wrong.append(f'{name_of(page)}: {line}')

    assert wrong == []


def tree_below(heading: str) -> set[str]:
    """The paths of an indented tree in the architecture page; folders end with a slash."""
    text = ARCHITECTURE.split(f'\n{heading}\n', 1)[1].split('\n#', 1)[0]
    found: set[str] = set()
    above: list[str] = []
    for indent, name in re.findall(r'^ {4}((?:  )*)(\S+)', text, re.MULTILINE):
        del above[len(indent) // 2 :]
        found.add(''.join((*above, name)))
        if name.endswith('/'):
            above.append(name)
    return found


def files_below(folder: Path, pattern: str) -> set[str]:
    """All modules of a package and the folders they are in."""
    files = {
        path.relative_to(folder)
        for path in folder.rglob(pattern)
        if not path.name.startswith('__') and not NOT_OURS & set(path.parts)
    }
    folders = {parent for path in files for parent in path.parents if parent != Path('.')}
    return {str(path) for path in files} | {f'{path}/' for path in folders}


@pytest.mark.parametrize(
    ('heading', 'folder'),
    [
        ('### The worker: worker/silkline', 'worker/silkline'),
        ('### The local stack: local/silkline_local', 'local/silkline_local'),
    ],
)
def test_the_architecture_page_names_every_module_and_folder(heading: str, folder: str) -> None:
    package = ROOT / folder

    assert tree_below(heading) == files_below(package, '*.py') | files_below(package, '*.sql')


def test_the_architecture_page_names_every_migration() -> None:
    there = {path.stem.partition('_')[2] for path in (ROOT / 'supabase/migrations').glob('*.sql')}

    assert tree_below('### The queue: supabase/migrations') == there


def test_the_architecture_page_names_every_folder_of_the_repository() -> None:
    ignored = {line.strip('/') for line in (ROOT / '.gitignore').read_text().splitlines()}
    there = {
        f'{path.name}/'
        for path in ROOT.iterdir()
        if path.is_dir() and path.name[0] != '.' and path.name not in ignored
    }
    benchmarks = {f'benchmarks/{name}' for name in folders_of('benchmarks')}

    assert tree_below('## Folders') == there | benchmarks


def folders_of(folder: str) -> set[str]:
    return {
        f'{path.name}/'
        for path in (ROOT / folder).iterdir()
        if path.is_dir() and path.name not in NOT_OURS
    }


def test_llms_txt_and_the_readme_list_every_document() -> None:
    pages = {name_of(path) for path in DOCS}
    index = (ROOT / 'llms.txt').read_text()
    listed = re.findall(r'^- \[[^]]+\]\(([^)]+)\): \S.*$', index, re.MULTILINE)
    linked = [path for path, _ in LINK.findall((ROOT / 'README.md').read_text())]

    assert index.startswith('# Silkline\n\n> ')
    assert len(listed) == len(set(listed))
    assert pages <= set(listed)
    assert pages <= set(linked)


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / 'pyproject.toml').read_text())
    requirements = [
        *project['project']['dependencies'],
        *(line for extra in project['project']['optional-dependencies'].values() for line in extra),
        *project['dependency-groups']['dev'],
    ]
    names = {found[0] for line in requirements if (found := re.match(r'[\w.-]+', line))}
    reasons = (ROOT / 'docs/explanation/decisions.md').read_text().partition('## Dependencies')[2]

    assert {name for name in names if f'`{name}`' not in reasons} == set()


def test_the_command_for_a_limited_key_makes_a_token_of_the_worker_role() -> None:
    page = (ROOT / 'docs/how-to/partner-key.md').read_text()
    [command] = re.findall(r'^    python (-c .+)$', page, re.MULTILINE)
    secret = secrets.token_hex(32)
    token = subprocess.run(
        [sys.executable, *shlex.split(command)],
        env={**os.environ, 'SUPABASE_JWT_SECRET': secret},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()

    claims = jwt.decode(token, secret, ['HS256'], options={'require': ['exp']})
    assert claims['role'] == 'crawl_worker'


def test_no_document_quotes_the_pages_that_the_extractor_was_built_on() -> None:
    assert [name_of(page) for page in PAGES if re.search(r'\b0\.980?\b', page.read_text())] == []
