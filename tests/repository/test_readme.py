"""The README shows what it is for on the first screen, and stays short."""

import re

from tests.support.servers import ROOT

README = (ROOT / 'README.md').read_text()


def test_the_first_screen_has_a_name_a_sentence_a_picture_and_two_commands() -> None:
    name, sentence, picture, commands, *_ = README.split('\n\n')

    assert name == '# Silkline'
    assert sentence.count('.') == 1
    assert re.fullmatch(r'!\[.+\]\(\S+\.svg\)', picture)
    assert [line.split('#')[0].strip() for line in commands.splitlines()] == [
        'make demo',
        'make test',
    ]


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 110
