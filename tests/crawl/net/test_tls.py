"""The system's certificates are trusted, whether in one file or in many."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from silkline.crawl.net.tls import SystemTrust, hashed_directory, no_certificates
from silkline.crawl.responses import NoResponse
from tests.support.certificates import Certificate
from tests.support.egress import OK, egress, fetch_from, resolving
from tests.support.raw_site import raw_site

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope='module')
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate.make('tls.example', tmp_path_factory.mktemp('certificate'))


@pytest.fixture
def system(certificate: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The certificates of a system that trusts only this one, without hashed names."""
    bundle = tmp_path / 'bundle.crt'
    bundle.write_bytes(certificate.certificate.read_bytes())
    monkeypatch.setenv('SSL_CERT_FILE', str(bundle))
    monkeypatch.setenv('SSL_CERT_DIR', str(tmp_path))
    return tmp_path


def rehash(directory: Path) -> None:
    """What `openssl rehash` does; the bundle holds one certificate."""
    command = ['openssl', 'x509', '-noout', '-subject_hash', '-in', str(directory / 'bundle.crt')]
    name = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    (directory / f'{name}.0').symlink_to('bundle.crt')


def fetch(certificate: Certificate) -> bytes:
    async def run() -> bytes:
        names = resolving({'tls.example': ['127.0.0.1']})
        async with raw_site({'/': OK}, tls=certificate.server()) as site:
            async with egress(resolve=names, tls=SystemTrust()) as out:
                return (await fetch_from(out, site.url(host='tls.example'))).body

    return asyncio.run(run())


def test_a_certificate_in_the_bundle_is_trusted(certificate: Certificate, system: Path) -> None:
    assert hashed_directory() is None
    assert fetch(certificate) == b'hello'


def test_a_certificate_in_a_hashed_directory_is_found(
    certificate: Certificate, system: Path
) -> None:
    rehash(system)

    assert hashed_directory() == str(system)
    assert fetch(certificate) == b'hello'


@pytest.mark.parametrize('is_hashed', [False, True])
def test_another_certificate_is_not_trusted(
    system: Path, is_hashed: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if is_hashed:
        rehash(system)
    other = Certificate.make('tls.example', tmp_path_factory.mktemp('other'))

    with pytest.raises(NoResponse) as caught:
        fetch(other)
    assert caught.value.kind == 'tls'


def test_a_bundle_with_more_certificates_than_the_directory_is_loaded(
    certificate: Certificate, system: Path
) -> None:
    rehash(system)
    with (system / 'bundle.crt').open('ab') as bundle:
        bundle.write(certificate.certificate.read_bytes())

    assert hashed_directory() is None


def test_a_bundle_next_to_hashed_certificates_is_not_ignored(
    certificate: Certificate, system: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """SSL_CERT_FILE names a file in the system's directory."""
    other = Certificate.make('tls.example', tmp_path_factory.mktemp('other')).certificate
    for name in ('0123abcd.0', '0123abcd.1'):
        (system / name).write_bytes(other.read_bytes())

    assert hashed_directory() is None
    assert fetch(certificate) == b'hello'


def test_a_directory_with_dangling_links_is_not_used(
    certificate: Certificate, system: Path
) -> None:
    """As in an image with a copy of /etc/ssl/certs, but without the targets of its links."""
    (system / '0123abcd.0').symlink_to('/nowhere/certificate.pem')

    assert hashed_directory() is None
    assert fetch(certificate) == b'hello'


def test_a_bundle_in_another_directory_is_not_ignored(
    certificate: Certificate, system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehash(system)
    monkeypatch.setenv('SSL_CERT_FILE', str(certificate.certificate))

    assert hashed_directory() is None
    assert fetch(certificate) == b'hello'


def test_the_environment_is_restored_after_the_import(system: Path) -> None:
    before = dict(os.environ)
    with no_certificates():
        assert dict(os.environ) != before

    assert dict(os.environ) == before


HOOK = """
import asyncio, sys
from silkline.crawl.net.tls import no_certificates

with no_certificates():
    import silkline.crawl.net.egress
import aiohttp

async def run():
    async with aiohttp.ClientSession() as session:
        async with session.get(sys.argv[1], server_hostname='tls.example') as answer:
            print(await answer.text())

asyncio.run(run())
"""


def test_a_session_that_a_plugin_opens_trusts_the_system_too(
    certificate: Certificate, system: Path
) -> None:
    async def run() -> bytes:
        async with raw_site({'/': OK}, tls=certificate.server()) as site:
            hook = await asyncio.create_subprocess_exec(
                sys.executable, '-c', HOOK, site.url(), cwd=ROOT, stdout=subprocess.PIPE
            )
            output, _ = await hook.communicate()
            return output

    assert asyncio.run(run()) == b'hello\n'
