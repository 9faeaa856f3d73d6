"""The runner's side of the frontier: what is sent to the database about URLs.

Links are checked (scope, depth, traps) and sent once, as far as a bounded memory allows; those that
the scope refuses are only counted. URLs end as done, error or skipped, or are retried. What is
fetched next, what the budget allows and when a crawl has drained is left to the database.
"""

from collections.abc import Sequence
from uuid import NAMESPACE_URL, UUID, uuid5

from silkline import framing, protocol
from silkline.crawl.engine.scope import Scope
from silkline.crawl.fetched import Fetched
from silkline.crawl.urls import join, key_of

MAX_HOPS = 10
MAX_CHAINS = 10_000
MAX_CHILD_SITEMAPS = 1000
MAX_PER_MESSAGE = 1000


class Frontier:
    def __init__(self, channel: protocol.Channel, scope: Scope, *, max_depth: int) -> None:
        self._channel = channel
        self._scope = scope
        self._max_depth = max_depth
        # Whether URLs to fetch were sent since the loop last reset this.
        self.has_new_urls = False
        self._seen = SeenUrls()
        # Kept apart: a URL that was found too deep may be found again on a shorter path.
        self._too_deep = SeenUrls(max_entries=50_000)
        # The redirects that led to a URL, until it has ended.
        self._chains: dict[UUID, tuple[UUID, ...]] = {}
        self._redirected_starts: set[str] = set()

    async def begin(self, starts: Sequence[str]) -> None:
        """Send the start URLs. After a resume the database knows them already."""
        found = [start_of(url) for url in starts]
        await self._send(found)
        for one in found:
            self._seen.add(one.url)

    async def discover(self, links: Sequence[str], *, depth: int, found_on: UUID | None) -> None:
        is_too_deep = depth > self._max_depth
        seen = self._too_deep if is_too_deep else self._seen
        found: list[protocol.FoundUrl] = []
        refused: dict[protocol.RefusedReason, int] = {}
        for url in links:
            if not seen.add(url):
                continue
            reason = self._scope.judge(url)
            if reason == 'out_of_scope' or reason == 'excluded':
                # At every depth: a link that was counted deep down is not counted again.
                if not is_too_deep or self._seen.add(url):
                    refused[reason] = refused.get(reason, 0) + 1
                continue
            if reason is None and is_too_deep:
                reason = 'too_deep'
            found.append(
                protocol.FoundUrl(
                    url_key=key_of(url), url=url, depth=depth, found_on=found_on, skip_reason=reason
                )
            )
        await self._send(found)
        if refused:
            await self._channel.send(protocol.LinksRefused(counts=refused))

    async def discover_sitemaps(
        self, sitemaps: Sequence[str], *, depth: int, found_on: UUID | None
    ) -> None:
        """Send the sitemaps that a sitemap names. They are not pages, so scope does not apply."""
        fresh = [url for url in sitemaps[:MAX_CHILD_SITEMAPS] if self._seen.add(url)]
        await self._send(
            [
                protocol.FoundUrl(url_key=key_of(url), url=url, depth=depth, found_on=found_on)
                for url in fresh
            ]
        )

    async def _send(self, found: Sequence[protocol.FoundUrl]) -> None:
        self.has_new_urls = self.has_new_urls or any(one.skip_reason is None for one in found)
        for first in range(0, len(found), MAX_PER_MESSAGE):
            await self._channel.send(
                protocol.Discovered(urls=list(found[first : first + MAX_PER_MESSAGE]))
            )

    async def redirect(self, task: protocol.Task, fetched: Fetched, target: str) -> None:
        """Send the target as a URL of its own, so that it is fetched and stored once."""
        target_key = key_of(target)
        chain = (*self._chains.get(task.url_key, ()), task.url_key)
        if target_key in chain:
            await self.fail(task, fetched, 'redirect loop, perhaps to set a cookie')
            return
        if len(chain) > MAX_HOPS:
            await self.fail(task, fetched, f'more than {MAX_HOPS} redirects')
            return
        if len(self._chains) < MAX_CHAINS:
            self._chains[target_key] = chain
        if task.depth == 0:
            # A start URL is in scope, wherever it redirects to.
            await self._move_start(target)
            await self.begin([target])
        else:
            await self.discover([target], depth=task.depth, found_on=task.url_key)
        await self.finish(task, fetched)

    async def finish_copy(self, task: protocol.Task, fetched: Fetched, canonical: str) -> None:
        """End a page that names another one as canonical, which may replace it."""
        if self._scope.judge(canonical) is not None:
            await self.finish(task, fetched)
            return
        await self.discover([canonical], depth=task.depth, found_on=task.url_key)
        await self.finish(task, fetched, canonical_key=key_of(canonical))

    async def _move_start(self, target: str) -> None:
        if self._scope.judge(target) is None:
            return
        self.take_redirected_starts([target])
        await self._channel.send(protocol.RedirectedStart(url=target))

    def take_redirected_starts(self, starts: Sequence[str]) -> None:
        for start in starts:
            if start not in self._redirected_starts:
                self._redirected_starts.add(start)
                self._scope.extend(start)

    def record_content(self, url: str, fingerprint: int) -> None:
        """Note the content of a page: the same content under many URLs reveals a trap."""
        self._scope.record_content(url, str(fingerprint))

    def is_trapped(self, url: str) -> bool:
        """Whether a URL has turned out to be in a trap since it was found. A start never is."""
        return self._scope.duplicates.is_blocked(url) and url not in self._scope.starts

    async def finish(
        self, task: protocol.Task, fetched: Fetched, *, canonical_key: UUID | None = None
    ) -> None:
        finished = protocol.Finished(
            url_key=task.url_key,
            status=fetched.status,
            http_status=fetched.http_status,
            bytes=fetched.bytes,
            skip_reason=fetched.skip_reason,
            error=fetched.error[:2000] if fetched.error else None,
            not_modified=fetched.not_modified,
            # Unless an earlier try has made a request.
            unfetched=(fetched.unfetched and task.attempts <= 1) or None,
            canonical_key=canonical_key,
            page=fetched.page,
        )
        self._chains.pop(task.url_key, None)
        try:
            await self._channel.send(finished)
        except framing.FrameTooLarge as error:
            # Perhaps the work of a plugin: it costs the page, not the crawl.
            await self._channel.send(
                protocol.Finished(
                    url_key=task.url_key,
                    status='skipped',
                    http_status=finished.http_status,
                    skip_reason='too_large',
                    error=str(error),
                )
            )

    async def fail(self, task: protocol.Task, fetched: Fetched, error: str) -> None:
        await self.finish(
            task, Fetched(status='error', http_status=fetched.http_status, error=error)
        )

    async def skip(self, task: protocol.Task, reason: protocol.SkipReason) -> None:
        """End a URL without a request."""
        await self.finish(task, Fetched(status='skipped', skip_reason=reason, unfetched=True))

    async def retry(self, task: protocol.Task, fetched: Fetched, *, after_seconds: float) -> None:
        await self._channel.send(
            protocol.Retried(
                url_key=task.url_key,
                after_seconds=min(after_seconds, 86_400),
                error=(fetched.error or 'unknown error')[:2000],
                http_status=fetched.http_status,
            )
        )


class SeenUrls:
    """The URLs that were sent already: a set that forgets its oldest members.

    The database knows every URL of a crawl and ignores duplicates. This filter only saves sending
    the same links from page to page; a URL it has forgotten is sent once more.

    Two generations: when the young one is full it replaces the old one. Hashes of 64 bits are kept,
    with a new key in every process, so that no site can choose URLs that collide; by chance two of
    200,000 collide in one of a thousand million crawls.
    """

    def __init__(self, *, max_entries: int = 200_000) -> None:
        self.max_young = max(1, max_entries // 2)
        self.young: set[int] = set()
        self.old: set[int] = set()

    def add(self, url: str) -> bool:
        """Add a URL; returns whether it is new, as far as remembered."""
        mark = hash(url)
        if mark in self.young:
            return False
        is_new = mark not in self.old
        if len(self.young) >= self.max_young:
            self.old, self.young = self.young, set()
        self.young.add(mark)
        return is_new

    def __len__(self) -> int:
        """How many are kept; a URL in both generations counts twice."""
        return len(self.young) + len(self.old)


def start_of(url: str) -> protocol.FoundUrl:
    """A start URL, read like a link: without its fragment, and with its host in ASCII.

    The database accepts some that browsers do not, such as http://1.2.3.4.5/.
    """
    url = join(url, '') or url
    try:
        return protocol.FoundUrl(url_key=key_of(url), url=url, depth=0)
    except ValueError:
        key = uuid5(NAMESPACE_URL, url)
        return protocol.FoundUrl(url_key=key, url=url, depth=0, skip_reason='invalid_url')
