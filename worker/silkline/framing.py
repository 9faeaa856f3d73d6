"""How messages cross the pipe between a supervisor and its runner.

A frame is four bytes of length, big-endian, and one JSON object whose `type` names the message.
Both sides import this module; the messages themselves are in `protocol.py`.
"""

from collections.abc import Mapping
from typing import Any, cast

from msgspec import DecodeError as MalformedJson
from msgspec import ValidationError, to_builtins
from msgspec.json import Decoder, Encoder
from msgspec.json import decode as decode_json

from silkline.errors import SilklineError
from silkline.protocol import FromRunner, ToRunner

HEADER_BYTES = 4
# A page of the longest Markdown that the queue accepts, at six bytes per character.
MAX_FRAME_BYTES = 64 * 1024 * 1024


class PipeError(SilklineError):
    """The other side broke the protocol. The supervisor kills its runner."""


class FrameTooLarge(PipeError):
    """A frame is longer than `MAX_FRAME_BYTES`, or claims to be."""


class FrameMalformed(PipeError):
    """A frame is not a message: cut short, not JSON, unknown type, or a field out of bounds."""


encoder = Encoder()
to_runner: Decoder[ToRunner] = Decoder(ToRunner)
from_runner: Decoder[FromRunner] = Decoder(FromRunner)


def encode(message: ToRunner | FromRunner) -> bytes:
    """One frame. Text that Postgres cannot store (NUL, lone surrogates) is replaced."""
    try:
        body = encoder.encode(message)
    except UnicodeEncodeError:
        body = encoder.encode(storable(to_builtins(message, str_keys=True)))
    else:
        if b'\\u0000' in body:
            body = encoder.encode(storable(to_builtins(message, str_keys=True)))
    return frame(body, what=type(message).__name__)


def encode_tasks(answer: Mapping[str, Any]) -> bytes:
    """The frame of a `Tasks`, from the queue's answer as it came: only the runner decodes it."""
    return frame(encoder.encode({**answer, 'type': 'tasks'}), what='Tasks')


def frame(body: bytes, *, what: str) -> bytes:
    if len(body) > MAX_FRAME_BYTES:
        raise FrameTooLarge(f'a {what} of {len(body)} bytes')
    return len(body).to_bytes(HEADER_BYTES) + body


def storable(value: Any) -> Any:
    if isinstance(value, str):
        whole = value.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')
        return whole.replace('\0', '\N{REPLACEMENT CHARACTER}')
    if isinstance(value, list):
        return [storable(item) for item in cast(list[Any], value)]
    if isinstance(value, dict):
        pairs = cast(dict[Any, Any], value)
        return {storable(key): storable(item) for key, item in pairs.items()}
    return value


def frame_length(header: bytes) -> int:
    """How many bytes follow. A bad length is refused before any of them is read."""
    length = int.from_bytes(header)
    if not 2 <= length <= MAX_FRAME_BYTES:
        raise FrameTooLarge(f'a frame of {length} bytes, announced by {header!r}')
    return length


def decode_to_runner(body: bytes) -> ToRunner:
    return decode(to_runner, body)


def decode_from_runner(body: bytes) -> FromRunner:
    return decode(from_runner, body)


def decode(decoder: Decoder[Any], body: bytes) -> Any:
    try:
        if b'\\u0000' in body:
            body = encoder.encode(storable(decode_json(body)))
        return decoder.decode(body)
    except (MalformedJson, ValidationError, RecursionError, UnicodeDecodeError) as error:
        raise FrameMalformed(f'{error}: {body[:80]!r}') from error
