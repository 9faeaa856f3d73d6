"""Pages that plugins have made or changed, checked before they are sent.

Owns the page hooks of a crawl. A plugin that fails costs one page, or only its own changes to it.
Types and sizes are checked here, because the supervisor ends a runner that sends it a malformed
page. Loading plugins is left to `installed_plugins.py`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import msgspec

from silkline.crawl.documents.record import MAX_CHARACTERS, bounded_links, versioned
from silkline.crawl.extract.quality import quality_of_text
from silkline.crawl.installed_plugins import FATAL, describe, required, version_of
from silkline.plugins import ExtractorPlugin, Page, PageHook

MAX_TITLE = 1000
MAX_METADATA_BYTES = 2 * 1024 * 1024
MAX_METADATA_DEPTH = 50

# Turns the links of a page into URLs.
JoinLinks = Callable[[Iterable[str]], list[str]]


class PluginExtractor:
    """An extractor under the name it was installed by."""

    def __init__(self, name: str, plugin: ExtractorPlugin) -> None:
        self.name = name
        self.version = version_of(plugin)
        self.markdown = plugin.markdown

    @classmethod
    def load(cls, name: str) -> 'PluginExtractor':
        return cls(name, required(name, 'extractor'))


class PageHooks:
    """The page hooks of a crawl. Each works on a copy: if it fails, its changes are dropped."""

    def __init__(self, hooks: Sequence[tuple[str, PageHook]]) -> None:
        self._hooks = hooks
        self.names = [versioned(name, version_of(hook)) for name, hook in hooks]

    def run(self, page: Page, *, joined: JoinLinks, max_markdown: int = MAX_CHARACTERS) -> Page:
        """The page as the hooks leave it, with the errors of those that failed in its metadata."""
        errors: list[str] = []
        for name, hook in self._hooks:
            changed = msgspec.structs.replace(
                page, links=list(page.links), metadata=msgspec.to_builtins(page.metadata)
            )
            try:
                hook.change(changed)
                changed = checked_page(
                    changed,
                    url=page.url,
                    known=page.links,
                    joined=joined,
                    max_markdown=max_markdown,
                )
            except FATAL:
                raise
            except BaseException as error:
                errors.append(f'{name}: {describe(error)}'[:300])
            else:
                changed.http_status = page.http_status
                # It compares the page with what the extractor made of it.
                changed.quality = changed.quality or page.quality
                page = changed
        if errors:
            page.metadata['hook_errors'] = errors
        return page


def checked_page(
    page: Page,
    *,
    url: str,
    known: list[str] | None = None,
    joined: JoinLinks,
    max_markdown: int = MAX_CHARACTERS,
) -> Page:
    """A copy of what a plugin may set. TypeError or ValueError where a field has a wrong type.

    Links that are not `known` are joined, and dropped if they are not URLs of pages. Markdown that
    is too long is cut, and the quality of the copy says so.
    """
    links = checked_strings(page.links, 'links')
    markdown = checked_text(page.markdown, 'markdown', max_markdown)
    is_cut = markdown is not None and len(markdown) < len(page.markdown or '')
    return Page(
        url=url,
        title=checked_text(page.title, 'title', MAX_TITLE),
        markdown=markdown,
        links=links if links == known else bounded_links(joined(links)),
        metadata=checked_metadata(page.metadata),
        quality=quality_of_text(len(page.markdown or ''), kept=max_markdown) if is_cut else None,
    )


def checked_text(value: object, name: str, limit: int) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f'{name} has type {type(value).__name__}: expected a string')
    return exact(value[:limit])


def checked_strings(value: object, name: str) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f'{name} has type {type(value).__name__}: expected a list of strings')
    found: list[str] = []
    for item in cast(Iterable[object], value):
        if not isinstance(item, str):
            raise TypeError(f'{name} contains a {type(item).__name__}: expected a list of strings')
        found.append(exact(item))
    return found


def exact(value: str) -> str:
    # Subclasses, such as a parser's, cannot be encoded, and may hold a whole document.
    return value if type(value) is str else str.__str__(value)


def checked_metadata(value: object) -> dict[str, Any]:
    """Metadata as it will be stored: a copy in plain types."""
    if not isinstance(value, dict):
        raise TypeError(f'metadata has type {type(value).__name__}: expected a dict')
    metadata: dict[str, Any] = msgspec.to_builtins(
        cast(dict[Any, Any], value), str_keys=True, enc_hook=plain
    )
    if is_deeper(metadata, MAX_METADATA_DEPTH):
        raise ValueError(f'metadata is nested more than {MAX_METADATA_DEPTH} levels deep')
    try:
        size = len(msgspec.json.encode(metadata))
    except UnicodeEncodeError:
        # Half a surrogate pair: what replaces it when it is sent takes no more bytes than this.
        size = len(repr(metadata))
    if size > MAX_METADATA_BYTES:
        raise ValueError(f'metadata is larger than {MAX_METADATA_BYTES} bytes')
    return metadata


def plain(value: object) -> str:
    if isinstance(value, str):
        return exact(value)
    raise TypeError(f'metadata contains a {type(value).__name__}, which is not JSON')


def is_deeper(value: object, levels: int) -> bool:
    if isinstance(value, dict):
        inner: Iterable[object] = cast(dict[str, object], value).values()
    elif isinstance(value, list | tuple):
        inner = cast(Sequence[object], value)
    else:
        return False
    return levels == 0 or any(is_deeper(item, levels - 1) for item in inner)
