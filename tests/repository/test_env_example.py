"""`.env.example` and `worker/silkline/settings.py` name the same variables."""

import re
from pathlib import Path

import pytest

from silkline import settings
from silkline.errors import SettingsError
from silkline.settings import read_project

ROOT = Path(__file__).parents[2]
LINES = (ROOT / '.env.example').read_text().splitlines()
# As `docker run --env-file` reads it: everything after the equals sign is the value.
EXAMPLE = {
    name: value
    for name, _, value in (line.partition('=') for line in LINES if line and line[0] != '#')
}


def test_the_example_lists_exactly_the_variables_that_settings_reads() -> None:
    source = Path(settings.__file__).read_text()

    assert set(EXAMPLE) == set(re.findall(r"'((?:SUPABASE|SILKLINE)_[A-Z_]+)'", source))


def test_the_example_contains_no_key() -> None:
    assert {name for name, value in EXAMPLE.items() if value} == {'SUPABASE_URL'}


def test_docker_systemd_and_shells_read_the_same_values() -> None:
    for line in LINES:
        assert re.fullmatch(r'|#.*|[A-Z_]+=[\w:/.-]*', line), line


def test_an_example_without_keys_is_refused_with_the_name_of_the_key(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match='SUPABASE_SECRET_KEY'):
        read_project(EXAMPLE, tmp_path)


@pytest.mark.parametrize(
    ('names', 'bearer'),
    [
        (['SUPABASE_SECRET_KEY'], 'SUPABASE_SECRET_KEY'),
        (['SUPABASE_SERVICE_ROLE_KEY'], 'SUPABASE_SERVICE_ROLE_KEY'),
        (['SUPABASE_WORKER_TOKEN', 'SUPABASE_PUBLISHABLE_KEY'], 'SUPABASE_WORKER_TOKEN'),
        (['SUPABASE_WORKER_TOKEN', 'SUPABASE_ANON_KEY'], 'SUPABASE_WORKER_TOKEN'),
    ],
)
def test_each_combination_of_keys_that_it_describes_works(
    tmp_path: Path, names: list[str], bearer: str
) -> None:
    filled_in = EXAMPLE | {name: f'the-{name}' for name in names}

    assert read_project(filled_in, tmp_path).bearer == f'the-{bearer}'
