"""What other packages add to the crawl: entry points of group `silkline.plugins`.

Each names a class, or a function without parameters, that makes one plugin; the entry point's name
is the plugin's. A plugin that does not load, is of another `api` or lacks a method is left out and
said so, and never ends a crawl. Owns finding and checking; who calls a plugin is the loop's matter.
docs/how-to/plugins.md is for authors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from silkline.crawl.net.egress import Egress
    from silkline.crawl.responses import Response

GROUP = 'silkline.plugins'
API = 1

Kind = Literal['extractor', 'fetcher', 'page_hook', 'job_kind']
KINDS: tuple[Kind, ...] = get_args(Kind)
METHODS: Mapping[Kind, Sequence[str]] = {
    'extractor': ('markdown',),
    'fetcher': ('open', 'fetch', 'close'),
    'page_hook': ('change',),
    'job_kind': ('starts', 'read', 'result'),
}
# What a plugin may raise and yet is not a matter of the plugin alone.
OURS = (KeyboardInterrupt, MemoryError)


@dataclass(slots=True, kw_only=True)
class PageDraft:
    """A page before it is stored. Hooks and job kinds may change every field but `url`."""

    url: str
    http_status: int | None = None
    title: str | None = None
    markdown: str | None = None
    links: list[str] = field(default_factory=list[str])
    # Small, and JSON: it is stored with the page.
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a job kind made of a response: links to fetch next, and a page to store, if any."""

    links: Sequence[str] = ()
    page: PageDraft | None = None


class ExtractorPlugin(Protocol):
    """`extractor` of a job names it: HTML in, Markdown out."""

    version: str

    def markdown(self, html: str, *, url: str) -> str: ...


class FetcherPlugin(Protocol):
    """`fetcher` of a job names it: another way to get a URL, through the same egress."""

    async def open(self, egress: 'Egress') -> None: ...
    async def fetch(
        self, url: str, *, headers: Mapping[str, str], max_bytes: int, timeout_seconds: float
    ) -> 'Response': ...
    async def close(self) -> None: ...


class PageHook(Protocol):
    """Sees every page of every crawl before it is stored."""

    def change(self, page: PageDraft) -> None: ...


class JobKind(Protocol):
    """Jobs of this kind are crawls whose pages it reads itself."""

    def starts(self, payload: Mapping[str, Any]) -> Sequence[str]: ...
    def read(self, response: 'Response', *, depth: int) -> Reading: ...
    def result(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An entry point, and what came of loading it."""

    name: str
    kind: Kind | None
    package: str
    version: str
    plugin: Any = None
    error: str | None = None


def discover() -> list[Found]:
    """All plugins that are installed, whether or not they load."""
    # Where it is needed: most runners have no plugins, and it takes 10 ms.
    from importlib.metadata import entry_points

    return [load(entry_point) for entry_point in sorted(entry_points(group=GROUP))]


def find(name: str, kind: Kind) -> Found | None:
    """The plugin of that name and kind; others are not loaded."""
    from importlib.metadata import entry_points

    for entry_point in entry_points(group=GROUP, name=name):
        found = load(entry_point)
        if found.kind == kind or found.kind is None:
            return found
    return None


def load(entry_point: 'EntryPoint') -> Found:
    package = entry_point.dist.name if entry_point.dist else 'unknown'
    version = entry_point.dist.version if entry_point.dist else ''
    kind: Kind | None = None
    try:
        plugin = entry_point.load()()
        kind = checked_kind(plugin)
    except OURS:
        raise
    except BaseException as error:
        return Found(
            name=entry_point.name,
            kind=kind,
            package=package,
            version=version,
            error=told(error),
        )
    return Found(name=entry_point.name, kind=kind, package=package, version=version, plugin=plugin)


def checked_kind(plugin: Any) -> Kind:
    kind = getattr(plugin, 'kind', None)
    if kind not in KINDS:
        raise TypeError(f'its kind is {kind!r}, not one of {", ".join(KINDS)}')
    if getattr(plugin, 'api', None) != API:
        raise TypeError(f'its api is {getattr(plugin, "api", None)!r}, and this is {API}')
    missing = [name for name in METHODS[kind] if not callable(getattr(plugin, name, None))]
    if missing:
        raise TypeError(f'it has no {" and no ".join(missing)}, which a {kind} needs')
    if kind == 'extractor' and not isinstance(getattr(plugin, 'version', None), str):
        raise TypeError('it has no version, which is stored with each page')
    return kind


def told(error: BaseException) -> str:
    """One line about what a plugin raised."""
    try:
        said = ' '.join(str(error).split())
    except OURS:
        raise
    except BaseException:
        said = 'which cannot be told'
    name = type(error).__name__
    return f'{name}: {said}'[:500] if said else name


def version_of(plugin: object) -> str:
    """The version that a plugin gives itself; extractors must have one, others may."""
    version = getattr(plugin, 'version', None)
    return str(version)[:100] if isinstance(version, str | int) else ''


def named(name: str, version: str) -> str:
    return f'{name}/{version}' if version else name
