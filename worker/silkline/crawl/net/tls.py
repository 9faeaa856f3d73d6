"""The certificates a crawl trusts: the system's, loaded only when they are needed.

OpenSSL takes 30 ms to load them all, and importing aiohttp loads them twice: a fifth of the start
of a runner. Where the system also keeps one file per certificate, named by hash, OpenSSL finds the
one that a site needs by itself.
"""

import os
import re
import ssl
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

VARIABLES = ('SSL_CERT_FILE', 'SSL_CERT_DIR')
# The names that `openssl rehash` gives: a hash of the subject, and a number for collisions.
HASHED = re.compile(r'[0-9a-f]{8}\.\d+')


class SystemTrust(ssl.SSLContext):
    """`ssl.create_default_context`, without certificates until the first connection."""

    _is_loaded = False

    def __new__(cls) -> 'SystemTrust':
        context = super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)
        context.set_alpn_protocols(['http/1.1'])
        if sys.version_info >= (3, 13):
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
        return context

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        if not self._is_loaded:
            self._is_loaded = True
            load_system_certificates(self)
        return super().wrap_bio(*arguments, **named)


def load_system_certificates(context: ssl.SSLContext) -> None:
    directory = hashed_directory()
    if directory is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(capath=directory)


def hashed_directory() -> str | None:
    """The directory with one file per certificate of the system, if it has all of them."""
    paths = ssl.get_default_verify_paths()
    if not (paths.cafile and paths.capath):
        return None
    bundle, directory = Path(paths.cafile).resolve(), Path(paths.capath).resolve()
    # Then both were written by one program; a certificate added to one by hand shows in the count.
    if bundle.parent != directory:
        return None
    try:
        count = bundle.read_bytes().count(b'-----BEGIN CERTIFICATE-----')
        named = [directory / name for name in os.listdir(directory) if HASHED.fullmatch(name)]
    except OSError:
        return None
    # Most are symbolic links; in some images their targets are missing.
    is_whole = len(named) == count and all(os.access(path, os.R_OK) for path in named)
    return str(directory) if is_whole else None


@contextmanager
def no_certificates() -> Generator[None]:
    """For the import of aiohttp, whose own context `session.py` replaces."""
    kept = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    os.environ.update(dict.fromkeys(VARIABLES, os.devnull))
    try:
        yield
    finally:
        for name in VARIABLES:
            del os.environ[name]
        os.environ.update(kept)
