"""Where browsers of these tests keep their profiles."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def temporary_directory(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the profile that a killed browser leaves; with a short name, for its socket."""
    monkeypatch.setenv('TMPDIR', str(directory))
