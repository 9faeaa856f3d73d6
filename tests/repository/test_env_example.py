"""`.env.example` and `worker/silkline/settings.py` name the same variables."""

import re
from pathlib import Path

import pytest
from silkline import settings
from silkline.errors import SettingsError
from silkline.settings import read_project

ROOT = Path(__file__).parents[2]
LINES = (ROOT / '.env.example').read_text().splitlines()
# As `docker run --env-file` reads it: what follows the sign is the value, whatever it is.
EXAMPLE = {
    name: value
    for name, _, value in (line.partition('=') for line in LINES if line and line[0] != '#')
}


def test_the_example_has_exactly_the_variables_that_are_read() -> None:
    source = Path(settings.__file__).read_text()

    assert set(EXAMPLE) == set(re.findall(r"'((?:SUPABASE|SILKLINE)_[A-Z_]+)'", source))


def test_the_example_holds_no_key() -> None:
    assert {name for name, value in EXAMPLE.items() if value} == {'SUPABASE_URL'}


def test_the_example_is_read_alike_by_docker_systemd_and_shells() -> None:
    for line in LINES:
        assert re.fullmatch(r'|#.*|[A-Z_]+=[\w:/.-]*', line), line


def test_an_example_that_is_not_filled_in_says_what_is_missing(tmp_path: Path) -> None:
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
def test_each_way_in_that_it_describes_is_one(
    tmp_path: Path, names: list[str], bearer: str
) -> None:
    filled_in = EXAMPLE | {name: f'the-{name}' for name in names}

    assert read_project(filled_in, tmp_path).bearer == f'the-{bearer}'
