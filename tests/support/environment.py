"""A Python environment that has the dependencies of this one, but not Silkline itself."""

import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path


def make_environment(
    directory: Path, *, without: Sequence[str] = (), paths: Sequence[Path] = ()
) -> str:
    """Create it in a new directory and return its Python.

    Packages whose names start with one of `without` are left out. `paths` can be imported from.
    """
    venv.create(directory / 'python', symlinks=True)
    links = directory / 'packages'
    links.mkdir()
    # The files of an editable installation go, too: they make the checkout importable.
    left_out = ('silkline', '_editable_impl_silkline', *without)
    for path in Path(sysconfig.get_path('purelib')).iterdir():
        if not path.name.startswith(left_out):
            (links / path.name).symlink_to(path)
    [packages] = (directory / 'python').glob('lib/python*/site-packages')
    (packages / 'added.pth').write_text(''.join(f'{path}\n' for path in (links, *paths)))
    return str(directory / 'python/bin/python')
