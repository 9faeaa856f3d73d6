"""Which directives of X-Robots-Tag apply to a crawler."""

import pytest
from multidict import CIMultiDict

from silkline.crawl.documents.robots_tag import directives_of


@pytest.mark.parametrize(
    ('header', 'directives'),
    [
        ('', set[str]()),
        ('noindex', {'noindex'}),
        ('NoIndex, NoFollow', {'noindex', 'nofollow'}),
        ('noindex nofollow', {'noindex', 'nofollow'}),
        ('otherbot: noindex, nofollow', set[str]()),
        ('otherbot: noindex, silkline: nofollow', {'nofollow'}),
        ('otherbot: max-snippet: 5, noindex', set[str]()),
        ('silkline: none', {'none'}),
        ('Silkline : noindex', {'noindex'}),
        ('*: noindex', {'noindex'}),
        ('otherbot: nofollow, *: noindex', {'noindex'}),
        ('max-snippet: 5, noindex', {'max-snippet', 'noindex'}),
        ('max-video-preview: -1, noindex', {'max-video-preview', 'noindex'}),
        ('max-image-preview: large, noindex', {'max-image-preview', 'noindex'}),
        ('some-new-word: 7, noindex', {'some-new-word', 'noindex'}),
        ('unavailable_after: Sat, 25 Jun 2010 15:00:00 PST', {'noindex'}),
        ('unavailable_after: 25-Aug-2007 15:00:00 EST, nofollow', {'noindex', 'nofollow'}),
        ('unavailable_after: 2010-06-25', {'noindex'}),
        ('unavailable_after: 2010-06-25T10:00:00Z', {'noindex'}),
        ('unavailable_after: 2999-06-25, nofollow', {'nofollow'}),
        ('unavailable_after: one day', set[str]()),
        ('otherbot: unavailable_after: Sat, 25 Jun 2010 15:00:00 PST', set[str]()),
    ],
)
def test_directives_apply_to_every_crawler_or_to_the_one_they_name(
    header: str, directives: set[str]
) -> None:
    assert directives_of({'X-Robots-Tag': header}, 'silkline') == directives


def test_repeated_headers_all_count() -> None:
    headers = CIMultiDict([('X-Robots-Tag', 'otherbot: nofollow'), ('x-robots-tag', 'noindex')])
    assert directives_of(headers, 'silkline') == {'noindex'}
    assert directives_of(headers, 'otherbot') == {'nofollow', 'noindex'}
    assert directives_of({}, 'silkline') == set()
