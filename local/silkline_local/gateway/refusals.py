"""Answers other than the one asked for."""

from collections.abc import Mapping


class Refusal(Exception):
    """A status, a JSON body and headers; raised anywhere below a handler, answered in `app.py`."""

    def __init__(
        self, status: int, body: Mapping[str, object], headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(f'{status} {body}')
        self.status = status
        self.body = body
        self.headers = headers or {}
