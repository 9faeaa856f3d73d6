"""The link targets of an llms.txt file."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silkline.crawl.documents.llms_txt import MAX_LINKS, links_of

FILE = """\ufeff# Example

> A summary with [a link](https://example.com/summary).

## Docs

- [Intro](https://example.com/docs/intro.md): where to begin
- [API reference](/docs/api.md "The API")
* [Again](https://example.com/docs/intro.md)

## Optional

- [Old (v1)](https://example.com/docs/v1_(old).md), [next](../v2.md)
- <https://example.com/bare>
"""


def test_links_come_in_order_without_duplicates() -> None:
    assert links_of(FILE) == [
        'https://example.com/summary',
        'https://example.com/docs/intro.md',
        '/docs/api.md',
        'https://example.com/docs/v1_(old).md',
        '../v2.md',
        'https://example.com/bare',
    ]


CASES = [
    ('', []),
    ('no links', []),
    ('[text](<a b.md>)', ['a b.md']),
    ("[text]( a.md 'title' )", ['a.md']),
    ('[a [nested] text](a.md)', ['a.md']),
    ('![picture](a.png)', []),
    ('[![badge](a.svg)](a.md)', ['a.md']),
    ('![alt [x](y.md)](a.png)', ['y.md']),
    ('`[code](a.md)` [b](b.md)', ['b.md']),
    ('``[code](a.md) ` `` [b](b.md)', ['b.md']),
    ('a ` lone tick [b](b.md)', ['b.md']),
    ('```\n[a](a.md)\n```\n[b](b.md)', ['b.md']),
    ('~~~md\n[a](a.md)\n```\n~~~\n[b](b.md)', ['b.md']),
    ('```\n[a](a.md)', []),
    (r'\[no](a.md) [b](b.md)', ['b.md']),
    ('[]() [b]() [c](c.md)', ['c.md']),
    ('[ref][1]\n\n[1]: https://example.com/ref "title"', ['https://example.com/ref']),
    ('[1]: <a b.md>', ['a b.md']),
    ('](a.md)', []),
    ('[a] (a.md)', []),
    ('a\r\n[b](b.md)\r[c](c.md)', ['b.md', 'c.md']),
    ('[b](b.md#part)', ['b.md#part']),
    ('[open](a.md', ['a.md']),
]


@pytest.mark.parametrize(('text', 'links'), CASES)
def test_each_form_of_a_link_in_markdown(text: str, links: list[str]) -> None:
    assert links_of(text) == links


@pytest.mark.parametrize('unit', [
    '[', ']', '](', '[](', '![', '`', '[a](', '[a]((', '](<', '](<a', '\\', '<https://',
    '[a](a(b)', '[x]:', '``` ', ' ',
])  # fmt: skip
def test_malicious_text_takes_linear_time(unit: str) -> None:
    started = time.process_time()
    links_of(unit * 100_000)
    links_of(f'{unit}\n' * 50_000)
    assert time.process_time() - started < 5


def test_the_number_of_links_is_bounded() -> None:
    assert len(links_of(' '.join(f'[a]({number})' for number in range(60_000)))) == MAX_LINKS


@given(st.text(alphabet='[]()!`\\<>\n :ax"', max_size=100))
def test_every_target_occurs_in_the_text(text: str) -> None:
    assert all(link and link in text for link in links_of(text))
