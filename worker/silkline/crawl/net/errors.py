"""What may come of a request instead of a response.

    EgressError
    ├── Refused       nothing was sent, and nothing will be: the URL is skipped
    ├── Unreachable   no whole response; `kind` decides whether it is tried again
    ├── TooLarge      more bytes than wanted, also when only decompression showed it
    └── BadBody       the body's encoding is unknown or broken

Each message is one sentence that may be shown to the owner of the crawl: it names the host as the
URL has it, and never an address it resolved to. `egress.py` passes these names on.
"""

from typing import Literal

Kind = Literal['dns_unknown', 'dns', 'connect', 'timeout', 'closed', 'tls', 'protocol']


class EgressError(Exception):
    """No usable response. The message is stored as the last error of the URL."""


class Refused(EgressError):
    """The rules forbid the request. The URL is skipped for `skip_reason`."""

    def __init__(
        self, message: str, skip_reason: Literal['forbidden_address', 'invalid_url']
    ) -> None:
        super().__init__(message)
        self.skip_reason: Literal['forbidden_address', 'invalid_url'] = skip_reason


class Unreachable(EgressError):
    """The other side gave no whole response. Tried again or not by its `kind`."""

    def __init__(self, message: str, kind: Kind) -> None:
        super().__init__(message)
        self.kind: Kind = kind


class TooLarge(EgressError):
    """The body has more bytes than wanted. The URL is skipped."""


class BadBody(EgressError):
    """The body cannot be decoded. The URL ends as an error."""


def forbidden(host: str) -> Refused:
    return Refused(
        f'{host} is at a forbidden address (private, reserved or local): only the operator of '
        'the worker can allow its network',
        'forbidden_address',
    )
