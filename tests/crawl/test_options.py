"""The options of a crawl, as a runner reads them."""

import pytest

from silkline.crawl.options import CrawlError, CrawlOptions, HostPolicy


@pytest.mark.parametrize('user_agent', ['a\r\nX-Bad: 1', 'a\tb', 'a\0', '\x7f', 'a\x85'])
def test_a_user_agent_with_control_characters_fails_the_job(user_agent: str) -> None:
    with pytest.raises(CrawlError, match='user_agent must not contain control characters'):
        CrawlOptions.read({'url': 'https://a.example/', 'user_agent': user_agent})


def test_a_user_agent_may_contain_any_other_text() -> None:
    agent = 'Mozilla/5.0 (compatible; MyBot/1.0; +https://a.example/ü)'
    assert CrawlOptions.read({'user_agent': agent}).user_agent == agent


def test_without_a_policy_every_host_may_be_crawled() -> None:
    assert CrawlOptions.read({'url': 'https://a.example/'}).policy.refusal('a.example') is None


HOSTS = [
    ('example.com', True),
    ('www.example.com', True),
    ('a.b.example.com:8443', True),
    ('EXAMPLE.com.', True),
    ('example.com.:80', True),
    ('badexample.com', False),
    ('example.com.evil.org', False),
    ('com', False),
    ('127.0.0.1:8000', True),
    ('127.0.0.2:8000', False),
    ('[::1]:8000', True),
    ('[::1]', True),
    ('[::2]', False),
]


@pytest.mark.parametrize(('host', 'is_named'), HOSTS)
def test_a_policy_names_hosts_and_all_hosts_below_them(host: str, is_named: bool) -> None:
    named = ['example.com', '127.0.0.1', '[::1]']
    allowing = CrawlOptions.read({'policy': {'allow_hosts': named}}).policy
    denying = CrawlOptions.read({'policy': {'deny_hosts': named}}).policy
    assert (allowing.refusal(host) is None) == is_named
    assert (denying.refusal(host) is not None) == is_named


def test_a_denied_host_is_refused_although_it_is_below_an_allowed_one() -> None:
    policy = HostPolicy(allow_hosts=['example.com'], deny_hosts=['private.example.com'])
    assert policy.refusal('www.example.com') is None
    why = policy.refusal('a.private.example.com')
    assert why == 'the operator of this queue denies crawls of private.example.com'
    why = policy.refusal('other.org:81')
    assert why == 'other.org is not one of the hosts that the operator of this queue allows'


def test_a_policy_that_allows_no_host_refuses_all() -> None:
    assert HostPolicy(allow_hosts=[]).refusal('example.com') is not None


def test_a_policy_that_is_not_understood_fails_the_job() -> None:
    with pytest.raises(CrawlError, match='policy'):
        CrawlOptions.read({'policy': {'deny_hosts': 'example.com'}})
