"""Self-signed certificates for servers on loopback."""

import ssl
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest


@dataclass
class Certificate:
    """Self-signed for one name; `requested_names` are those that clients sent by SNI."""

    certificate: Path
    key: Path
    requested_names: list[str | None] = field(default_factory=list[str | None])

    @classmethod
    def make(cls, name: str, directory: Path) -> Self:
        made = cls(directory / 'certificate.pem', directory / 'key.pem')
        command = [
            *('openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256'),
            *(
                '-nodes',
                '-days',
                '2',
                '-subj',
                f'/CN={name}',
                '-addext',
                f'subjectAltName=DNS:{name}',
            ),
            *('-keyout', str(made.key), '-out', str(made.certificate)),
        ]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except FileNotFoundError:
            pytest.skip('openssl is not installed: apt-get install openssl')
        return made

    def server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        context.sni_callback = lambda _, name, __: self.requested_names.append(name)
        return context

    def client(self) -> ssl.SSLContext:
        """Trusts this certificate and no other."""
        return ssl.create_default_context(cafile=str(self.certificate))
