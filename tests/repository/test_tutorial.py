"""The tutorial works: every block of it is run, in order, by one shell.

The blocks come from the Markdown. `sh` blocks run as they are; a block of another language begins
with a comment that names its file; an `output` block lists lines that the `sh` block before it must
print. `make` runs dry, because the installation that it describes is the one these tests run in.
"""

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from silkline_local.directory import StackDirectory
from tests.support.ports import unused_port
from tests.support.servers import NODE_MODULES, ROOT

TUTORIAL = ROOT / 'docs/tutorials/your-own-app.md'
PORT = '8321'
PRIVATE = ('.git', '.silkline', '.venv', 'node_modules')
has_javascript = shutil.which('node') is not None and (NODE_MODULES / '@supabase').exists()


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    text: str

    @property
    def needs_javascript(self) -> bool:
        return self.language == 'js' or (self.language == 'sh' and 'node ' in self.text)


@dataclass(frozen=True, slots=True)
class Run:
    """What each `sh` block printed, by its text; and the exit code of the shell."""

    printed: dict[str, str]
    code: int


def read_blocks(port: int) -> list[Block]:
    text = TUTORIAL.read_text().replace(PORT, str(port))
    return [Block(*found) for found in re.findall(r'^```(\w+)\n(.*?)^```$', text, re.M | re.S)]


def make_script(blocks: list[Block]) -> str:
    """One script that ends at the first block that fails."""
    parts = ['set -e']
    for number, block in enumerate(blocks):
        if block.needs_javascript and not has_javascript:
            continue
        if block.language == 'sh':
            parts += [f'echo "::block {number}"', block.text]
        elif block.language != 'output':
            parts.append(f"cat > {file_name(block)} <<'END_OF_BLOCK'\n{block.text}END_OF_BLOCK")
    return '\n'.join(parts)


def file_name(block: Block) -> str:
    named = re.match(r'(?:#|//) (\w+\.\w+)\n', block.text)
    assert named, f'the block does not name its file:\n{block.text}'
    return named[1]


@pytest.fixture(scope='module')
def blocks() -> list[Block]:
    return read_blocks(unused_port())


@pytest.fixture(scope='module')
def run(blocks: list[Block]) -> Iterator[Run]:
    """The tutorial, followed in a directory that looks like a clone."""
    with tempfile.TemporaryDirectory(prefix='silkline-') as name:
        clone = Path(name)
        # The database server may run as another account.
        clone.chmod(0o711)
        for path in ROOT.iterdir():
            if path.name not in PRIVATE:
                (clone / path.name).symlink_to(path)
        (clone / '.venv').symlink_to(sys.prefix)
        if has_javascript:
            (clone / 'node_modules').symlink_to(NODE_MODULES)
        shell = subprocess.Popen(
            ['bash', '-c', make_script(blocks)],
            cwd=clone,
            env=environment(clone),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            try:
                printed, _ = shell.communicate(timeout=150)
            except subprocess.TimeoutExpired:
                os.killpg(shell.pid, signal.SIGKILL)
                printed, _ = shell.communicate()
                pytest.fail(f'the tutorial did not end; it printed:\n{printed}')
            print(printed)
            parts = re.split(r'^::block (\d+)\n', printed, flags=re.M)
            texts = {
                blocks[int(number)].text: text
                for number, text in zip(parts[1::2], parts[2::2], strict=True)
            }
            yield Run(texts, shell.returncode)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            StackDirectory(clone / '.silkline').lock.stop()


def environment(clone: Path) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(('SUPABASE_', 'SILKLINE_', 'MAKE'))
    }
    return {**kept, 'MAKEFLAGS': 'n', 'XDG_STATE_HOME': str(clone / 'state')}


def expected_output(blocks: list[Block], *, javascript: bool) -> list[tuple[str, list[str]]]:
    """Each `sh` block with an `output` block after it, and the lines of that."""
    return [
        (block.text, answer.text.splitlines())
        for block, answer in itertools.pairwise(blocks)
        if block.language == 'sh'
        and answer.language == 'output'
        and block.needs_javascript is javascript
    ]


@pytest.mark.timeout(200)
def test_every_block_of_the_tutorial_runs_and_prints_what_it_shows(
    blocks: list[Block], run: Run
) -> None:
    assert run.code == 0
    expected = expected_output(blocks, javascript=False)
    assert len(expected) >= 3
    for command, lines in expected:
        for line in lines:
            assert line in run.printed[command]


@pytest.mark.timeout(200)
@pytest.mark.skipif(not has_javascript, reason='no Node with supabase-js: npm ci in tests/tools')
def test_the_javascript_of_the_tutorial_prints_what_it_shows(blocks: list[Block], run: Run) -> None:
    [(command, lines)] = expected_output(blocks, javascript=True)

    for line in lines:
        assert line in run.printed[command]


def test_every_block_of_the_tutorial_is_of_a_language_that_is_run(blocks: list[Block]) -> None:
    fences = re.findall(r'^```', TUTORIAL.read_text(), re.M)

    assert len(fences) == 2 * len(blocks)
    assert {block.language for block in blocks} == {'sh', 'python', 'js', 'output'}
    # An indented block would not be run.
    assert not re.search(r'^ {4}\S', re.sub(r'(?s)```.*?```', '', TUTORIAL.read_text()), re.M)
