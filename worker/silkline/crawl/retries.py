"""Which failures are retried, and after how long.

Every class of failure is bounded, so that a crawl always drains: failures of a URL by its number of
tries, failures of a host by the number of times it is left alone (`engine/hosts.py`).
"""

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Literal

# connection: no response. server: a temporary error. rate_limited: too many requests.
RetryClass = Literal['connection', 'server', 'rate_limited']

# By the kind of a `NoResponse`; other kinds are final.
RETRYABLE_KINDS: Mapping[str, RetryClass] = {
    'dns': 'connection',
    'connect': 'connection',
    'timeout': 'connection',
    'closed': 'connection',
    'protocol': 'server',
}
TRANSIENT = frozenset({408, 425, 500, 502, 504, *range(520, 525), 527, 530})
RATE_LIMITED = frozenset({429, 503})
# A site is asked again after this time, whatever its Retry-After says.
MAX_PAUSE_SECONDS = 3600.0


def retry_class_of(status: int) -> RetryClass | None:
    """The class of an HTTP status that is worth a retry; None for all others."""
    if status in RATE_LIMITED:
        return 'rate_limited'
    return 'server' if status in TRANSIENT else None


def retry_delay_seconds(nth: int, *, first_seconds: float) -> float:
    """How long to wait before the nth retry: doubled each time, with jitter."""
    pause = first_seconds * 2 ** min(nth - 1, 30)
    return min(pause, MAX_PAUSE_SECONDS) * random.uniform(0.8, 1.2)  # noqa: S311 - no secret


def retry_after_seconds(header: str | None, *, now: datetime | None = None) -> float | None:
    """The delay in a `Retry-After`, in either form; None if it is missing, past or malformed."""
    if not header:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit():
        seconds = float(text[:10])
    else:
        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError):
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = (moment - (now or datetime.now(UTC))).total_seconds()
    return min(seconds, MAX_PAUSE_SECONDS) if seconds > 0 else None


def status_text(status: int) -> str:
    """A status for people, such as `HTTP 404 Not Found`."""
    try:
        return f'HTTP {status} {HTTPStatus(status).phrase}'
    except ValueError:
        return f'HTTP {status}'
