"""Dockerfile, systemd unit and docs/how-to/deploy.md agree with the worker."""

import json
import re
from pathlib import Path

from typer.main import get_command

from silkline.cli.commands.worker import commands
from silkline.supervisor.metrics import Metrics
from silkline.supervisor.worker import WorkerOptions

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / 'worker/Dockerfile').read_text()
UNIT = (ROOT / 'examples/systemd/silkline-worker.service').read_text()
DOCS = (ROOT / 'docs/how-to/deploy.md').read_text()
IGNORED = (ROOT / '.dockerignore').read_text().splitlines()


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    assert match, pattern
    return match[1]


def test_every_option_that_is_set_exists() -> None:
    entrypoint: list[str] = json.loads(found(r'^ENTRYPOINT (\[.*\])$', DOCKERFILE))
    used = [
        *entrypoint[entrypoint.index('worker') + 1 :],
        *found(r'^ExecStart=\S+/silkline worker (.*)$', UNIT).split(),
    ]
    known = {option for one in get_command(commands).params for option in one.opts}

    assert {word for word in used if word.startswith('--')} - known == set()


def test_every_host_waits_longer_than_a_worker_takes_to_stop() -> None:
    grace = WorkerOptions().grace_seconds
    names = 'stop-timeout|stop_grace_period|kill_timeout|ShutdownDelaySeconds|GracePeriodSeconds'
    waits = re.findall(rf'(?:{names})[ :=]+(\d+)', DOCS)

    assert len(waits) == 5
    assert all(float(seconds) > grace + 10 for seconds in waits)
    unit_grace = float(found(r'--grace (\d+)', UNIT))
    assert float(found(r'^TimeoutStopSec=(\d+)$', UNIT)) > unit_grace + 10


def test_the_documented_metrics_are_those_of_the_worker() -> None:
    metrics = Metrics(slots=1)
    families = {family.name: family.type for family in metrics.registry.collect()}
    suffixes = {'counter': ['_total'], 'histogram': ['_bucket', '_count', '_sum'], 'gauge': ['']}
    names = {
        name + suffix
        for name, kind in families.items()
        for suffix in suffixes[kind]
        if name.startswith('silkline_')
    }
    named = set(re.findall(r'\bsilkline_[a-z_]+', DOCS))

    assert named - names == set()
    # Every metric is documented.
    assert {name.removesuffix('_total') for name in families if name.startswith('silkline_')} == {
        re.sub(r'_(total|bucket|count|sum)$', '', name) for name in named
    }


def test_the_health_check_asks_the_port_that_is_served() -> None:
    served = found(r'"--metrics-port", "(\d+)"', DOCKERFILE)

    assert re.findall(r"C\('127\.0\.0\.1', (\d+)", DOCKERFILE) == [served]
    assert found(r'^EXPOSE (\d+)$', DOCKERFILE) == served
    assert found(r'--metrics-port (\d+)', UNIT) == served


def test_docker_sends_the_builder_what_is_copied_and_nothing_else() -> None:
    copied = {
        source
        for line in re.findall(r'^COPY (?!--from)(.*)$', DOCKERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    }

    assert IGNORED[1] == '*'
    assert {line[1:] for line in IGNORED if line.startswith('!')} == copied
    assert all((ROOT / source).exists() for source in copied)


def test_image_and_unit_hold_no_key() -> None:
    assert not re.search(r'(?i)^(ARG|ENV).*(key|token|secret|supabase)', DOCKERFILE, re.MULTILINE)
    assert 'EnvironmentFile=' in UNIT
    assert 'SUPABASE' not in UNIT
