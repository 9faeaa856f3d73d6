"""A gateway with its own database for the tests of one module, and clients for it."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from tests.support.database import Database
from tests.support.gateway import GatewayThread
from tests.support.servers import Server


@dataclass(frozen=True, slots=True)
class Api:
    """The REST API of a gateway, with a client per key: secret and publishable."""

    database: Database
    gateway: GatewayThread
    service: httpx.Client
    anonymous: httpx.Client

    @property
    def url(self) -> str:
        return f'{self.gateway.url}/rest/v1'

    def as_user(self, token: str) -> dict[str, str]:
        """The headers of a page that calls as a signed-in user."""
        return {'apikey': self.gateway.keys.publishable, 'Authorization': f'Bearer {token}'}

    def call(
        self, function: str, arguments: dict[str, Any] | None = None, **headers: str
    ) -> httpx.Response:
        """Call as the service; underscores in names of headers become dashes."""
        return self.service.post(
            f'/rpc/{function}',
            json=arguments or {},
            headers={name.replace('_', '-'): value for name, value in headers.items()},
        )


@contextmanager
def open_api(server: Server, template: str, setup: str) -> Generator[Api]:
    """Run `setup` as postgres before the gateway reads the schema."""
    with ExitStack() as opened:
        database = opened.enter_context(server.database(template))
        database.query(setup)
        gateway = opened.enter_context(GatewayThread(database))

        def client(key: str) -> httpx.Client:
            return opened.enter_context(
                httpx.Client(
                    base_url=f'{gateway.url}/rest/v1',
                    headers={'apikey': key, 'Authorization': f'Bearer {key}'},
                    timeout=60,
                )
            )

        yield Api(
            database=database,
            gateway=gateway,
            service=client(gateway.keys.secret),
            anonymous=client(gateway.keys.publishable),
        )
