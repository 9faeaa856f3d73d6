"""A package of plugins, made for one test: installed is what lies in a directory of the path."""

from collections.abc import Mapping
from pathlib import Path


def install(directory: Path, source: str, plugins: Mapping[str, str], *, name: str) -> None:
    """A distribution `name` 1.0 with one module of that name; `plugins` by name to its class."""
    (directory / f'{name}.py').write_text(source)
    info = directory / f'{name}-1.0.dist-info'
    info.mkdir()
    (info / 'METADATA').write_text(f'Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n')
    lines = ''.join(f'{key} = {name}:{value}\n' for key, value in plugins.items())
    (info / 'entry_points.txt').write_text(f'[silkline.plugins]\n{lines}')
