"""Which failures are tried again, and when.

Every class is bounded, so that a crawl always drains: what a URL does wrong ends with its tries,
what a host does wrong with the patience of `hosts.py`.
"""

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Literal

# connection: no answer. server: an answer that says "not now". rate_limited: "not so fast".
RetryClass = Literal['connection', 'server', 'rate_limited']

# By the kind of what was `NoResponse`; the others stay as they are.
RETRYABLE_KINDS: Mapping[str, RetryClass] = {
    'dns': 'connection',
    'connect': 'connection',
    'timeout': 'connection',
    'closed': 'connection',
    'protocol': 'server',
}
TRANSIENT = frozenset({408, 425, 500, 502, 504, *range(520, 525), 527, 530})
RATE_LIMITED = frozenset({429, 503})
# Whatever a site asks for, it is asked again within that time.
MAX_PAUSE_SECONDS = 3600.0


def retry_class_of(status: int) -> RetryClass | None:
    """The class of an HTTP status that is worth another try; None for all others."""
    if status in RATE_LIMITED:
        return 'rate_limited'
    return 'server' if status in TRANSIENT else None


def retry_delay_seconds(nth: int, *, first_seconds: float) -> float:
    """Before the nth retry: doubled each time, and spread, so that URLs do not return together."""
    pause = first_seconds * 2 ** min(nth - 1, 30)
    return min(pause, MAX_PAUSE_SECONDS) * random.uniform(0.8, 1.2)  # noqa: S311 - no secret


def retry_after_seconds(header: str | None, *, now: datetime | None = None) -> float | None:
    """What `Retry-After` asks for, in either form; None for none, the past and nonsense."""
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
    """`HTTP 404 Not Found`, for people."""
    try:
        return f'HTTP {status} {HTTPStatus(status).phrase}'
    except ValueError:
        return f'HTTP {status}'
