"""What a request gives: a response, or the error that says why there is none.

    EgressError
    ├── Refused       nothing was sent, and nothing will be: the URL is skipped
    ├── NoResponse   no complete response; `kind` decides whether it is retried
    ├── TooLarge      more bytes than allowed, perhaps only after decompression
    └── UndecodableBody       the body's encoding is unknown or broken

A message is one sentence that the owner of the crawl may see: it names the host as the URL has it,
and never an address that it resolved to. Plugins import these from `silkline.plugins`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from silkline.errors import SilklineError

NoResponseKind = Literal[
    'dns_unknown', 'dns', 'connect', 'timeout', 'closed', 'tls', 'protocol', 'render'
]

REDIRECTS = frozenset((301, 302, 303, 307, 308))


@dataclass(frozen=True, slots=True)
class Response:
    """One response. `url` is the URL that was requested, as a browser would write it."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    # The IP address that was dialed.
    address: str
    # From the start of the request, including DNS lookup and connecting.
    seconds: float
    first_byte_seconds: float
    # Whether the body is what a browser shows, after the scripts of the page have run.
    is_rendered: bool = False


class EgressError(SilklineError):
    """No usable response. The message is stored as the last error of the URL."""


class Refused(EgressError):
    """The rules forbid the request. The URL is skipped for `skip_reason`."""

    def __init__(
        self, message: str, skip_reason: Literal['forbidden_address', 'invalid_url']
    ) -> None:
        super().__init__(message)
        self.skip_reason: Literal['forbidden_address', 'invalid_url'] = skip_reason


class NoResponse(EgressError):
    """The server gave no complete response. Its `kind` decides whether the URL is retried."""

    def __init__(self, message: str, kind: NoResponseKind) -> None:
        super().__init__(message)
        self.kind: NoResponseKind = kind


class TooLarge(EgressError):
    """The body has more bytes than allowed. The URL is skipped."""


class UndecodableBody(EgressError):
    """The body cannot be decoded. The URL ends as an error."""


def forbidden(host: str) -> Refused:
    return Refused(
        f'{host} is at a forbidden address (private, reserved or local): only the operator of '
        'the worker can allow it, with --allow-network',
        'forbidden_address',
    )
