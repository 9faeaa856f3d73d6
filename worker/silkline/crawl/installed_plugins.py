"""Find, load and check the plugins that are installed next to Silkline.

A plugin that does not load, has another `api` or lacks a method is reported and left out; only a
job that names it fails. What a plugin has to offer is in `silkline.plugins`. Calling plugins is
left to `fetchers/plugin.py`, `documents/plugin_pages.py` and `documents/job_kinds.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from silkline.crawl.options import CrawlError
from silkline.plugins import API, GROUP, PageHook, PluginKind

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

KINDS: tuple[PluginKind, ...] = get_args(PluginKind)
METHODS: Mapping[PluginKind, Sequence[str]] = {
    'extractor': ('markdown',),
    'fetcher': ('open', 'fetch', 'close'),
    'page_hook': ('change',),
    'job_kind': ('starts', 'read', 'result'),
}
# Raised inside a plugin, these concern the whole process: they are never caught.
FATAL = (KeyboardInterrupt, MemoryError)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPlugin:
    """An entry point, with the plugin it made or the error it raised."""

    name: str
    kind: PluginKind | None
    package: str
    version: str
    plugin: Any = None
    error: str | None = None


def discover() -> list[InstalledPlugin]:
    """All installed plugins, including those that do not load."""
    # Imported here: most runners have no plugins, and it takes 10 ms.
    from importlib.metadata import entry_points

    return [load(entry_point) for entry_point in sorted(entry_points(group=GROUP))]


def page_hooks() -> tuple[list[tuple[str, PageHook]], list[str]]:
    """The hooks that load, by name, and one line about each plugin that does not."""
    found = discover()
    hooks = [(one.name, one.plugin) for one in found if one.kind == 'page_hook' and one.plugin]
    errors = [f'skipped plugin {one.name}: {one.error}' for one in found if one.error]
    return hooks, errors


def required(name: str, kind: PluginKind) -> Any:
    """The plugin that a job names; `CrawlError` if it is not installed or does not load."""
    found = find(name, kind)
    what = kind.replace('_', ' ')
    if found is None:
        raise CrawlError(
            f'no {what} {name!r} is installed on this worker: `silkline plugins` lists what is'
        )
    if found.error is not None:
        raise CrawlError(f'the {what} {name!r} failed to load: {found.error}')
    return found.plugin


def find(name: str, kind: PluginKind) -> InstalledPlugin | None:
    """The plugin of that name and kind, without loading any other."""
    from importlib.metadata import entry_points

    for entry_point in entry_points(group=GROUP, name=name):
        found = load(entry_point)
        if found.kind == kind or found.kind is None:
            return found
    return None


def load(entry_point: 'EntryPoint') -> InstalledPlugin:
    package = entry_point.dist.name if entry_point.dist else 'unknown'
    version = entry_point.dist.version if entry_point.dist else ''
    kind: PluginKind | None = None
    plugin = error = None
    try:
        made = entry_point.load()()
        kind = checked_kind(made)
        plugin = made
    except FATAL:
        raise
    except BaseException as raised:
        error = describe(raised)
    return InstalledPlugin(
        name=entry_point.name,
        kind=kind,
        package=package,
        version=version,
        plugin=plugin,
        error=error,
    )


def checked_kind(plugin: Any) -> PluginKind:
    kind = getattr(plugin, 'kind', None)
    if kind not in KINDS:
        raise TypeError(f'kind is {kind!r}: expected one of {", ".join(KINDS)}')
    if getattr(plugin, 'api', None) != API:
        raise TypeError(f'api is {getattr(plugin, "api", None)!r}: this Silkline supports {API}')
    missing = [name for name in METHODS[kind] if not callable(getattr(plugin, name, None))]
    if missing:
        raise TypeError(f'a plugin of kind {kind} needs the method {" and ".join(missing)}')
    if kind == 'extractor' and not isinstance(getattr(plugin, 'version', None), str):
        raise TypeError('an extractor needs a version (a string), which is stored with each page')
    return kind


def describe(error: BaseException) -> str:
    """One line about what a plugin raised."""
    try:
        message = ' '.join(str(error).split())
    except FATAL:
        raise
    except BaseException:
        message = 'its message cannot be read'
    name = type(error).__name__
    return f'{name}: {message}'[:500] if message else name


def version_of(plugin: object) -> str:
    """The version that a plugin gives itself; extractors must have one, others may."""
    version = getattr(plugin, 'version', None)
    return str(version)[:100] if isinstance(version, str | int) else ''
