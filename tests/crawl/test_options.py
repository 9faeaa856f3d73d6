"""The options of a crawl, as a runner reads them."""

import pytest

from silkline.crawl.options import CrawlError, CrawlOptions


@pytest.mark.parametrize('user_agent', ['a\r\nX-Bad: 1', 'a\tb', 'a\0', '\x7f', 'a\x85'])
def test_a_user_agent_with_control_characters_fails_the_job(user_agent: str) -> None:
    with pytest.raises(CrawlError, match='user_agent must not contain control characters'):
        CrawlOptions.read({'url': 'https://a.example/', 'user_agent': user_agent})


def test_a_user_agent_may_contain_any_other_text() -> None:
    agent = 'Mozilla/5.0 (compatible; MyBot/1.0; +https://a.example/ü)'
    assert CrawlOptions.read({'user_agent': agent}).user_agent == agent
