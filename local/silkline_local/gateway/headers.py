"""Headers as JSON, for functions and policies that read `request.headers`."""

from collections.abc import Iterable, Mapping

import msgspec


def encode_headers(headers: Iterable[tuple[str, str]]) -> bytes:
    return encode_texts({name.lower(): value for name, value in headers})


def encode_texts(texts: Mapping[str, str]) -> bytes:
    """Bytes that are not UTF-8, which HTTP lets pass, are replaced."""
    try:
        return msgspec.json.encode(texts)
    except UnicodeEncodeError:
        return msgspec.json.encode(
            {printable(name): printable(value) for name, value in texts.items()}
        )


def printable(text: str) -> str:
    return text.encode(errors='surrogateescape').decode(errors='replace')
