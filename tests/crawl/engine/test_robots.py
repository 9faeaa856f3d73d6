"""RFC 9309, case by case, and what the RFC leaves to the crawler."""

# ruff: noqa: E501 - each case is one line

import time

import pytest

from silkline.crawl.engine.robots import MAX_CHARACTERS, Robots, product_token, verdict_of

SIMPLE_EXAMPLE = """
            User-Agent: *
            Disallow: *.gif$
            Disallow: /example/
            Allow: /publications/

            User-Agent: foobot
            Disallow:/
            Allow:/example/page.html
            Allow:/example/allowed.gif

            User-Agent: barbot
            User-Agent: bazbot
            Disallow: /example/page.html

            User-Agent: quxbot

            EOF
"""
LONGEST_MATCH_EXAMPLE = """
            User-Agent: foobot
            Allow: /example/page/
            Disallow: /example/page/disallowed.gif
"""
TWO_GROUPS = """user-agent: ExampleBot
disallow: /foo
disallow: /bar

user-agent: ExampleBot
disallow: /baz
"""
NO_GROUP_FOR_US = """user-agent: *
disallow: /foo
disallow: /bar

user-agent: BazBot
disallow: /baz
"""
FULL_AGENT = 'Mozilla/5.0 (compatible; ExampleBot/0.1; https://www.example.com/bot.html)'
YES, NO = True, False


def rules(*lines: str) -> str:
    """A file with one group for all agents."""
    return '\n'.join(['user-agent: *', *lines, ''])


def group(agent: str) -> str:
    return f'user-agent: *\nallow: /\nuser-agent: {agent}\ndisallow: /\n'


def word(number: int) -> str:
    return 'x' + ''.join(chr(ord('a') + int(digit)) for digit in str(number))


# Claim, robots.txt, agent, path, whether it may be fetched.
TABLE: list[tuple[str, str, str, str, bool]] = [
    # 2.1, 2.2: groups and lines
    ('an empty file allows all', '', 'a', '/x', YES),
    ('a file of comments allows all', '# disallow: /\n', 'a', '/x', YES),
    ('a rule applies', rules('disallow: /'), 'a', '/x', NO),
    ('field names are case-insensitive', 'USER-AGENT: a\ndIsAlLoW: /\n', 'a', '/x', NO),
    ('spaces around the colon', ' \tuser-agent \t: a\n\t disallow\t:\t/x \t\n', 'a', '/x', NO),
    ('no space is needed', 'user-agent:a\ndisallow:/x', 'a', '/x', NO),
    ('lines end with CRLF', 'user-agent: a\r\ndisallow: /x\r\n', 'a', '/x', NO),
    ('lines end with CR', 'user-agent: a\rdisallow: /x\r', 'a', '/x', NO),
    ('line ends may be mixed', 'user-agent: a\rdisallow: /y\ndisallow: /x\r\n', 'a', '/x', NO),
    ('the last line needs no end', 'user-agent: a\ndisallow: /x', 'a', '/x', NO),
    ('no other character ends a line', rules('disallow: /a\x0cb\u2028c'), 'a', '/a', YES),
    ('a byte order mark is not part of the line', '\ufeffuser-agent: a\ndisallow: /', 'a', '/', NO),
    ('empty lines do not end a group', 'user-agent: a\n\n\ndisallow: /x\n\ndisallow: /y', 'a', '/y', NO),
    ('empty lines may separate agents', 'user-agent: a\n\nuser-agent: b\ndisallow: /', 'a', '/x', NO),
    ('a missing colon is accepted', 'user-agent *\ndisallow /x', 'a', '/x', NO),
    ('prose is not a rule', rules('disallow everything you like'), 'a', '/everything', YES),
    ('a user-agent line after rules begins a group', 'user-agent: a\ndisallow: /x\nuser-agent: b\ndisallow: /y', 'a', '/y', YES),
    ('agents in a row share their rules', 'user-agent: a\nuser-agent: b\ndisallow: /', 'a', '/x', NO),
    ('agents in a row share their rules, the last too', 'user-agent: a\nuser-agent: b\ndisallow: /', 'b', '/x', NO),
    ('a star among agents counts', 'user-agent: *\nuser-agent: b\ndisallow: /', 'c', '/x', NO),
    ('the last group may have no rules', 'user-agent: *\ndisallow: /\nuser-agent: a', 'a', '/x', YES),
    # 2.2.1: the user-agent line
    ('agents are case-insensitive', 'user-agent: EXAMPLEbot\ndisallow: /', 'examplebot', '/x', NO),
    ('agents are case-insensitive, other way', 'user-agent: examplebot\ndisallow: /', 'ExampleBot', '/x', NO),
    ('the token is found in a whole User-Agent', group('ExampleBot'), FULL_AGENT, '/x', NO),
    ('the token is the first word', group('ExampleBot'), 'ExampleBot/1.0 (+https://x.org)', '/x', NO),
    ('a name in a URL of the User-Agent is not the token', group('bot'), FULL_AGENT, '/x', YES),
    ('Mozilla is not the token', group('Mozilla'), FULL_AGENT, '/x', YES),
    ('a part of a token is another token', group('Example'), 'ExampleBot', '/x', YES),
    ('a part before a hyphen is another token', group('Example'), 'Example-Bot', '/x', YES),
    ('a part at the end is another token', group('bot'), 'Example-Bot', '/x', YES),
    ('a longer token is another token', group('ExampleBot-News'), 'ExampleBot', '/x', YES),
    ('a version in the line is not part of the token', group('ExampleBot/2.1'), 'ExampleBot', '/x', NO),
    ('words after the token are ignored', group('ExampleBot and friends'), 'ExampleBot', '/x', NO),
    ('a comment after the token is ignored', group('ExampleBot # us'), 'ExampleBot', '/x', NO),
    ('a star with words is a star', 'user-agent: * all\ndisallow: /', 'a', '/x', NO),
    ('an empty agent matches none', 'user-agent:\ndisallow: /', 'a', '/x', YES),
    ('groups of one agent are merged: first', TWO_GROUPS, 'ExampleBot', '/foo', NO),
    ('groups of one agent are merged: second', TWO_GROUPS, 'ExampleBot', '/bar', NO),
    ('groups of one agent are merged: third', TWO_GROUPS, 'ExampleBot', '/baz', NO),
    ('groups of one agent are merged: other paths', TWO_GROUPS, 'ExampleBot', '/qux', YES),
    ('merged groups may differ in case', 'user-agent: A\ndisallow: /x\nuser-agent: b\ndisallow: /\nuser-agent: a\ndisallow: /y', 'a', '/x', NO),
    ('groups for all agents are merged', 'user-agent: *\ndisallow: /x\nuser-agent: b\ndisallow: /\nuser-agent: *\ndisallow: /y', 'a', '/x', NO),
    ('without a group of its own the star applies', NO_GROUP_FOR_US, 'ExampleBot', '/foo', NO),
    ('without a group of its own no other applies', NO_GROUP_FOR_US, 'ExampleBot', '/baz', YES),
    ('with a group of its own the star does not apply', NO_GROUP_FOR_US, 'BazBot', '/foo', YES),
    ('with a group of its own that applies', NO_GROUP_FOR_US, 'BazBot', '/baz', NO),
    ('without any group for it no rules apply', 'user-agent: b\ndisallow: /', 'a', '/x', YES),
    # 2.2.2: allow and disallow
    ('paths are case-sensitive', rules('disallow: /X'), 'a', '/x', YES),
    ('a match begins at the first octet', rules('disallow: /b'), 'a', '/a/b', YES),
    ('a rule is a prefix', rules('disallow: /fish'), 'a', '/fishheads/yummy.html', NO),
    ('a rule with a slash needs it', rules('disallow: /fish/'), 'a', '/fish', YES),
    ('the longest match decides: disallow', rules('disallow: /x/page.html', 'allow: /x/'), 'a', '/x/page.html', NO),
    ('the longest match decides: allow', rules('allow: /x/page.html', 'disallow: /x/'), 'a', '/x/page.html', YES),
    ('the longest match decides: another path', rules('allow: /x/page.html', 'disallow: /x/'), 'a', '/x/', NO),
    ('order makes no difference', rules('disallow: /', 'allow: /p'), 'a', '/page', YES),
    ('length counts the star', rules('allow: /page', 'disallow: /*.htm'), 'a', '/page.htm', NO),
    ('length is that of the rule', rules('allow: /x/page.', 'disallow: /*.html'), 'a', '/x/page.html', YES),
    ('length is counted in octets', rules('allow: /ü', 'disallow: /ü*'), 'a', '/%C3%BC', NO),
    ('allow wins a tie', rules('disallow: /folder', 'allow: /folder'), 'a', '/folder/page', YES),
    ('allow wins a tie in any order', rules('allow: /folder', 'disallow: /folder'), 'a', '/folder/page', YES),
    ('allow wins a tie of wildcards', rules('disallow: /*b', 'allow: /*b'), 'a', '/ab', YES),
    ('allow wins a tie between wildcard and prefix', rules('disallow: /*b', 'allow: /ab'), 'a', '/ab', YES),
    ('no match allows', rules('disallow: /x'), 'a', '/y', YES),
    ('an empty disallow matches nothing', rules('disallow:'), 'a', '/x', YES),
    ('an empty allow matches nothing', rules('disallow: /', 'allow:'), 'a', '/x', NO),
    ('an empty disallow is a rule: it ends the list of agents', 'user-agent: a\ndisallow:\nuser-agent: b\ndisallow: /', 'a', '/x', YES),
    ('a path without slash matches nothing', rules('disallow: fish'), 'a', '/fish', YES),
    ('rules before any group are ignored', 'disallow: /\nuser-agent: a\ndisallow: /y', 'a', '/x', YES),
    ('rules before any group allow nothing', 'allow: /x\nuser-agent: a\ndisallow: /', 'a', '/x', NO),
    ('/robots.txt is always allowed', rules('disallow: /'), 'a', '/robots.txt', YES),
    ('only the exact path /robots.txt is always allowed', rules('disallow: /'), 'a', '/robots.txt.bak', NO),
    ('the query is part of the path', rules('disallow: /*?'), 'a', '/search?q=1', NO),
    ('a query can be matched', rules('disallow: /hide?id='), 'a', '/hide?id=1', NO),
    ('the fragment is not part of the path', rules('disallow: /x$'), 'a', '/x#y', NO),
    ('no path is the root', rules('disallow: /$'), 'a', '', NO),
    ('no path and a query', rules('disallow: /?q'), 'a', '?q=1', NO),
    # 2.2.2: percent-encoding, the table
    ('encoding: plain', rules('disallow: /foo/bar?baz=quz'), 'a', '/foo/bar?baz=quz', NO),
    ('encoding: reserved in the URL', rules('disallow: /foo/bar?baz=https://foo.bar'), 'a', '/foo/bar?baz=https%3A%2F%2Ffoo.bar', NO),
    ('encoding: reserved in the rule', rules('disallow: /foo/bar?baz=https%3A%2F%2Ffoo.bar'), 'a', '/foo/bar?baz=https://foo.bar', NO),
    ('encoding: reserved in both', rules('disallow: /foo/bar?baz=https://foo.bar'), 'a', '/foo/bar?baz=https://foo.bar', NO),
    ('encoding: UTF-8 in the rule', rules('disallow: /foo/bar/ツ'), 'a', '/foo/bar/%E3%83%84', NO),
    ('encoding: UTF-8 in the URL', rules('disallow: /foo/bar/%E3%83%84'), 'a', '/foo/bar/ツ', NO),
    ('encoding: UTF-8 in neither', rules('disallow: /foo/bar/%E3%83%84'), 'a', '/foo/bar/%E3%83%84', NO),
    ('encoding: unreserved in the URL', rules('disallow: /foo/bar/baz'), 'a', '/foo/bar/%62%61%7A', NO),
    ('encoding: unreserved in the rule', rules('disallow: /foo/bar/%62%61%7A'), 'a', '/foo/bar/baz', NO),
    ('encoding: hex digits are case-insensitive', rules('disallow: /secret%aa'), 'a', '/secret%AA', NO),
    ('encoding: hex digits are case-insensitive, other way', rules('disallow: /secret%AA'), 'a', '/secret%aa', NO),
    ('encoding: an escaped slash in the URL is not a slash', rules('disallow: /a/b'), 'a', '/a%2Fb', YES),
    ('encoding: an escaped slash in the rule is not a slash', rules('disallow: /a%2Fb'), 'a', '/a/b', YES),
    ('encoding: a space', rules('disallow: /a b'), 'a', '/a%20b', NO),
    ('encoding: a stray percent sign', rules('disallow: /100%'), 'a', '/100%/x', NO),
    # 2.2.3: special characters
    ('a comment ends a rule', rules('allow: / # comment in line', 'disallow: /x#y'), 'a', '/x', NO),
    ('a comment on its own line', rules('# disallow: /'), 'a', '/x', YES),
    ('$ ends a path', rules('disallow: /this/path/exactly$'), 'a', '/this/path/exactly', NO),
    ('$ matches only at the end', rules('disallow: /this/path/exactly$'), 'a', '/this/path/exactly/x', YES),
    ('$ does not match before a query', rules('disallow: /*.php$'), 'a', '/x.php?a', YES),
    ('$ within a path is itself', rules('disallow: /a$b'), 'a', '/a$b', NO),
    ('$ at the root', rules('allow: /$', 'disallow: /'), 'a', '/', YES),
    ('$ at the root only', rules('allow: /$', 'disallow: /'), 'a', '/page', NO),
    ('* matches anything', rules('disallow: /this/*/exactly'), 'a', '/this/or/that/exactly', NO),
    ('* matches nothing, too', rules('disallow: /this/*exactly'), 'a', '/this/exactly', NO),
    ('* matches slashes, too', rules('disallow: /*.php'), 'a', '/folder/any.php.file.html', NO),
    ('the text around * is case-sensitive', rules('disallow: /*.php'), 'a', '/windows.PHP', YES),
    ('* at the end changes nothing', rules('disallow: /fish*'), 'a', '/fish', NO),
    ('* at the start', rules('disallow: *.gif$'), 'a', '/a/b.gif', NO),
    ('* alone', rules('disallow: *'), 'a', '/x', NO),
    ('*$ matches anything', rules('disallow: /a*$'), 'a', '/abc', NO),
    ('** is *', rules('disallow: /a**b'), 'a', '/axb', NO),
    ('parts do not overlap', rules('disallow: /ab*ba$'), 'a', '/aba', YES),
    ('the last part matches at the end', rules('disallow: /*b$'), 'a', '/bab', NO),
    ('parts match in order', rules('disallow: /*a*b*c'), 'a', '/acb', YES),
    ('%2A is a star in a URL', rules('disallow: /path/file-with-a-%2A.html'), 'a', '/path/file-with-a-*.html', NO),
    ('%2A is not a wildcard', rules('disallow: /path/file-with-a-%2A.html'), 'a', '/path/file-with-a-x.html', YES),
    ('%24 is a dollar in a URL', rules('disallow: /path/foo-%24'), 'a', '/path/foo-$', NO),
    ('%24 is not an end', rules('disallow: /path/foo-%24'), 'a', '/path/foo-', YES),
    ('%24 matches a prefix', rules('disallow: /path/foo-%24'), 'a', '/path/foo-$x', NO),
    # 2.2.4: other records
    ('a sitemap does not end a group', 'user-agent: a\nsitemap: https://x/s.xml\nuser-agent: b\ndisallow: /', 'a', '/x', NO),
    ('a sitemap among rules does not end a group', 'user-agent: a\ndisallow: /x\nsitemap: https://x/s.xml\ndisallow: /y', 'a', '/y', NO),
    ('a Crawl-delay does not end a group', 'user-agent: a\ncrawl-delay: 5\nuser-agent: b\ndisallow: /', 'a', '/x', NO),
    ('unknown lines do not end a group', 'user-agent: a\nhost: x\nuser-agent: b\nnoindex: /\ndisallow: /', 'a', '/x', NO),
    # 2.3.1.5: every line that can be read is used
    ('garbage is ignored', rules('\x00\x01\x02', ':::', 'disallow', '<html>', 'disallow: /x'), 'a', '/x', NO),
    ('a web page has no rules', '<!doctype html><title>disallow: /</title>', 'a', '/x', YES),
    ('common misspellings are accepted', 'useragent: a\ndissallow: /x', 'a', '/x', NO),
    # 5.1 and 5.2: the examples
    ('example: * and .gif', SIMPLE_EXAMPLE, 'any', '/x/y.gif', NO),
    ('example: * and .gif with more', SIMPLE_EXAMPLE, 'any', '/x/y.gif?z', YES),
    ('example: * and /example/', SIMPLE_EXAMPLE, 'any', '/example/x', NO),
    ('example: * and /publications/', SIMPLE_EXAMPLE, 'any', '/publications/x', YES),
    ('example: foobot', SIMPLE_EXAMPLE, 'foobot', '/', NO),
    ('example: foobot and its page', SIMPLE_EXAMPLE, 'foobot', '/example/page.html', YES),
    ('example: foobot and its picture', SIMPLE_EXAMPLE, 'foobot', '/example/allowed.gif', YES),
    ('example: foobot and another', SIMPLE_EXAMPLE, 'foobot', '/example/other.gif', NO),
    ('example: barbot', SIMPLE_EXAMPLE, 'barbot', '/example/page.html', NO),
    ('example: bazbot', SIMPLE_EXAMPLE, 'bazbot', '/example/page.html', NO),
    ('example: bazbot and another path', SIMPLE_EXAMPLE, 'bazbot', '/example/', YES),
    ('example: quxbot', SIMPLE_EXAMPLE, 'quxbot', '/example/page.html', YES),
    ('example: the longest', LONGEST_MATCH_EXAMPLE, 'foobot', '/example/page/disallowed.gif', NO),
    ('example: the shorter', LONGEST_MATCH_EXAMPLE, 'foobot', '/example/page/disallow.gif', YES),
]  # fmt: skip


@pytest.mark.parametrize(
    ('text', 'agent', 'path', 'is_allowed'),
    [pytest.param(*row, id=claim) for claim, *row in TABLE],
)
def test_rfc_9309(text: str, agent: str, path: str, is_allowed: bool) -> None:
    robots = Robots.parse(text)
    assert robots.allows(f'https://www.example.com{path}', agent) is is_allowed


STATUSES = [
    *[(status, 'rules') for status in (200, 204, 299)],
    *[(status, 'allow_all') for status in (400, 401, 403, 404, 410, 451, 499)],
    # Rate limiting, server errors and network errors say nothing about the rules.
    *[(status, 'unavailable') for status in (429, 500, 502, 503, 504, 599, 0)],
    # A redirect here is one more than are followed.
    *[(status, 'unavailable') for status in (100, 301, 302, 304, 308, 600, -1)],
]


@pytest.mark.parametrize(('status', 'verdict'), STATUSES)
def test_the_status_of_robots_txt_decides_what_is_allowed(status: int, verdict: str) -> None:
    assert verdict_of(status) == verdict


def test_500_kib_are_read_without_a_truncated_line() -> None:
    line = 'disallow: /a-path-of-some-length\n'
    filler = line * ((MAX_CHARACTERS - 100) // len(line))
    last = Robots.parse(f'user-agent: *\n{filler}disallow: /last\n')
    assert not last.allows('https://x/last', 'a')
    head = 'user-agent: *\n' + '#' * (MAX_CHARACTERS - 14 - len('disallow: /') - 1) + '\n'
    cut = Robots.parse(f'{head}disallow: /private\n')
    assert cut.allows('https://x/public', 'a')
    assert cut.allows('https://x/private', 'a')


AGENTS = [
    ('Silkline', 'silkline'),
    ('Silkline/0.1 (+https://example.com)', 'silkline'),
    ('silk-line_bot/2', 'silk-line_bot'),
    (FULL_AGENT, 'examplebot'),
    ('Mozilla/5.0 (compatible; MyBot/1.0; +https://example.com)', 'mybot'),
    ('Mozilla/5.0 A/5 (KHTML, like Gecko; compatible; MyBot/1.2; +https://a.example)', 'mybot'),
    ('Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0', 'mozilla'),
    ('', ''),
    ('42', ''),
    ('ツ', ''),
]


@pytest.mark.parametrize(('agent', 'token'), AGENTS)
def test_the_product_token_of_a_user_agent(agent: str, token: str) -> None:
    assert product_token(agent) == token


DELAYS = [
    ('user-agent: *\ncrawl-delay: 2.5', 2.5),
    ('user-agent: *\nCrawl-Delay:10 # slow', 10),
    ('user-agent: *\ncrawl-delay: 0', 0),
    ('user-agent: *\ncrawl-delay: 1\ncrawl-delay: 9', 1),
    ('user-agent: *\ncrawl-delay: 999999', 3600),
    ('user-agent: *\ncrawl-delay: inf', 3600),
    ('user-agent: *\ncrawl-delay: nan', None),
    ('user-agent: *\ncrawl-delay: -1', None),
    ('user-agent: *\ncrawl-delay: soon', None),
    ('user-agent: other\ncrawl-delay: 5', None),
    ('user-agent: *\ncrawl-delay: 5\nuser-agent: silkline\ndisallow: /x', None),
    ('user-agent: *\ndisallow: /x\nuser-agent: silkline\ncrawl-delay: 3', 3),
    # It applies to the agents above it, though the group goes on.
    ('user-agent: other\ncrawl-delay: 5\nuser-agent: *\ndisallow: /x', None),
    ('crawl-delay: 5\nuser-agent: *\ndisallow: /x', None),
]


@pytest.mark.parametrize(('text', 'seconds'), DELAYS)
def test_the_crawl_delay_is_that_of_the_group_that_applies(
    text: str, seconds: float | None
) -> None:
    assert Robots.parse(text).crawl_delay_seconds('Silkline/1.0') == seconds


def test_sitemaps_apply_to_all_agents_and_keep_their_order() -> None:
    robots = Robots.parse(
        'Sitemap: https://x/b.xml\nuser-agent: a\ndisallow: /\n'
        'SITEMAP:https://x/a.xml#part # ours\nsitemap: \nsite-map: /relative.xml\n'
        'sitemap: https://x/b.xml\n'
    )
    assert robots.sitemaps == ['https://x/b.xml', 'https://x/a.xml#part', '/relative.xml']


def test_lone_surrogates_do_not_raise() -> None:
    robots = Robots.parse('user-agent: *\ndisallow: /\ud800\nsitemap: \ud800\n')
    assert robots.allows('https://x/x\udfff', '\ud800')


@pytest.mark.parametrize(
    'pattern', ['/' + 'a*' * 200 + 'b', '/' + 'a*' * 200 + 'b$', '/*' + 'a' * 500 + '*b$']
)
def test_a_malicious_pattern_takes_linear_time(pattern: str) -> None:
    robots = Robots.parse(rules(f'disallow: {pattern}'))
    started = time.process_time()
    for _ in range(100):
        assert robots.allows('https://x/' + 'a' * 2000, 'a')
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    'text',
    [
        rules(*[f'disallow: /a*{number}a*a*a*a*b' for number in range(20_000)]),
        rules('disallow: /' + 'a*' * 250_000),
        rules('a' + ' ' * 500_000),
        rules('disallow' + ' ' * 500_000 + 'x'),
        rules('disallow:' + ' ' * 500_000 + 'x'),
        rules('disallow: /' + '%' * 500_000),
        rules(*['user-agent: a'] * 30_000, *['disallow: /x'] * 1_000),
        ''.join(
            f'user-agent: a{chr(97 + number % 26) * (number % 50)}\n' for number in range(20_000)
        ),
        '\r' * 500_000,
        ''.join(f'user-agent: {word(number)}\n' for number in range(15_000))
        + ''.join(f'disallow: /{number}\n' for number in range(15_000)),
        ''.join(f'user-agent: {word(number)}\ncrawl-delay: 1\n' for number in range(12_000)),
    ],
    ids=range(11),
)
def test_a_malicious_file_is_parsed_and_matched_within_seconds(text: str) -> None:
    started = time.process_time()
    robots = Robots.parse(text)
    for _ in range(5):
        assert robots.allows('https://x/' + 'a' * 2000, 'someone')
    assert time.process_time() - started < 5
