"""Receive the body of a response: decode it as it arrives, and stop at a size limit.

However well a body is compressed, at most `max_bytes` and one chunk of it are held in memory, and
between two encodings at most one chunk. Reading from the connection is left to `session.py`.
"""

import functools
import importlib.util
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from silkline.crawl import charsets
from silkline.crawl.responses import TooLarge, UndecodableBody

CHUNK_BYTES = 64 * 1024
MAX_ENCODINGS = 2
# Besides identity, values that servers send by mistake for a body that is not encoded.
NO_ENCODINGS = frozenset(
    ('', 'identity', 'none', 'binary', '7bit', '8bit', 'aws-chunked', *charsets.NAMES)
)
# Members of gzip or frames of zstd. Empty ones cost time without giving bytes.
MAX_MEMBERS = 4096
# How much longer than the decoded body an encoded one may be: headers, and uncompressed blocks.
SLACK_BYTES = 64 * 1024
# The limit of RFC 9659 for the web.
ZSTD_WINDOW_LOG = 23


def zlib_module() -> Any:
    """zlib-ng if it is installed: 0.19 ms for a page of 42 KB, where zlib takes 0.34 ms."""
    try:
        return importlib.import_module('zlib_ng.zlib_ng')
    except ImportError:
        return importlib.import_module('zlib')


zlib = zlib_module()


class Body:
    """A body while it is received: `feed` what arrives, then `finish`."""

    def __init__(self, encodings: str = '', *, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._decoders = decoders_of(encodings) if encodings else []
        self._arrived = 0
        self._size = 0
        # Most bodies arrive in one piece, which need not be copied.
        self._first = b''
        self._rest: io.BytesIO | None = None

    def expect(self, content_length: str | None) -> None:
        """Refuse a body whose Content-Length is too large."""
        if content_length is not None and content_length.isdecimal():
            # Not converted if it has more digits than any real length: there may be thousands.
            if len(content_length) > 18 or int(content_length) > self._limit:
                raise self._too_large()

    def feed(self, data: bytes) -> None:
        """Add bytes as they arrived; raises `TooLarge` or `UndecodableBody`."""
        self._arrived += len(data)
        pieces: Iterable[bytes] = (data,)
        for decoder in self._decoders:
            pieces = self._decode(decoder, pieces)
        for piece in pieces:
            room = self.max_bytes - self._size
            self._size += len(piece)
            self._keep(piece if len(piece) <= room else piece[:room])
            if len(piece) > room:
                raise self._too_large()
        if self._arrived > self._limit:
            raise self._too_large()

    def finish(self) -> bytes:
        """The whole body; raises `UndecodableBody` if it is incomplete."""
        if self._arrived:
            for decoder in self._decoders:
                if not decoder.is_whole:
                    raise UndecodableBody(f'the {decoder.name} body is incomplete')
        return self.so_far()

    @property
    def is_encoded_and_complete(self) -> bool:
        """Whether the encoding itself shows that nothing is missing."""
        return bool(self._decoders) and all(decoder.is_whole for decoder in self._decoders)

    def so_far(self) -> bytes:
        """The part of the body that has arrived."""
        return self._first if self._rest is None else self._rest.getvalue()

    def _keep(self, piece: bytes) -> None:
        if self._rest is not None:
            self._rest.write(piece)
        elif not self._first:
            self._first = piece
        elif piece:
            self._rest = io.BytesIO()
            self._rest.write(self._first)
            self._rest.write(piece)

    @property
    def _limit(self) -> int:
        return self.max_bytes + (SLACK_BYTES if self._decoders else 0)

    def _decode(self, decoder: 'BodyDecoder', pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            for decoded in decoder.decode(piece):
                yield decoded
                decoder.decoded_bytes += len(decoded)
                if decoder.decoded_bytes > self._limit:
                    raise self._too_large()

    def _too_large(self) -> TooLarge:
        return TooLarge(f'the body is larger than {self.max_bytes} bytes')


class BodyDecoder(Protocol):
    """Decodes one encoding of a body, in chunks of at most about `CHUNK_BYTES`."""

    name: str
    decoded_bytes: int

    def decode(self, data: bytes) -> Iterator[bytes]: ...
    @property
    def is_whole(self) -> bool: ...


def decoders_of(encodings: str) -> list[BodyDecoder]:
    """The decoders for a Content-Encoding, in the order they are applied."""
    if encodings == 'gzip':
        return [Gzip()]
    names = [name.strip().lower() for name in encodings.split(',', MAX_ENCODINGS + 4)]
    names = [name for name in names if name not in NO_ENCODINGS]
    if len(names) > MAX_ENCODINGS:
        raise UndecodableBody(f'the body has more than {MAX_ENCODINGS} encodings')
    return [decoder_of(name) for name in reversed(names)]


def decoder_of(name: str) -> BodyDecoder:
    make = DECODERS.get(name)
    if make is None or not is_installed(MODULES.get(name)):
        raise UndecodableBody(f'unknown Content-Encoding {name[:40]!r}')
    return make()


class Gzip:
    """Members of gzip in a row; what follows the last one is ignored, as browsers do."""

    name = 'gzip'

    def __init__(self) -> None:
        self.decoded_bytes = 0
        self._stream = zlib.decompressobj(wbits=31)
        self._members = 1
        self._is_over = False

    def decode(self, data: bytes) -> Iterator[bytes]:
        while not self._is_over:
            if self._stream.eof:
                data = data.lstrip(b'\0')
                if not data:
                    return
                if data[0] != 0x1F:
                    self._is_over = True
                    return
                self._members = one_more(self._members, self.name)
                self._stream = zlib.decompressobj(wbits=31)
            piece = inflate(self._stream, data, self.name)
            yield piece
            data = self._stream.unused_data or self._stream.unconsumed_tail
            # After a full chunk, the stream may still hold output of the data it was given.
            if not data and len(piece) < CHUNK_BYTES:
                return

    @property
    def is_whole(self) -> bool:
        return self._stream.eof


class Deflate:
    """A zlib stream, or the raw deflate stream that some servers send instead."""

    name = 'deflate'

    def __init__(self) -> None:
        self.decoded_bytes = 0
        self._stream: Any = None
        self._head = b''

    def decode(self, data: bytes) -> Iterator[bytes]:
        if self._stream is None:
            self._head += data
            if len(self._head) < 2:
                return
            data = self._head
            has_header = data[0] & 0x0F == 8 and int.from_bytes(data[:2]) % 31 == 0
            self._stream = zlib.decompressobj(wbits=15 if has_header else -15)
        while not self._stream.eof:
            piece = inflate(self._stream, data, self.name)
            yield piece
            data = self._stream.unconsumed_tail
            if not data and len(piece) < CHUNK_BYTES:
                return

    @property
    def is_whole(self) -> bool:
        return self._stream is not None and self._stream.eof


class Brotli:
    name = 'br'

    def __init__(self) -> None:
        brotli: Any = importlib.import_module(MODULES[self.name])
        self.decoded_bytes = 0
        self._error: type[Exception] = brotli.error
        self._stream: Any = brotli.Decompressor()

    def decode(self, data: bytes) -> Iterator[bytes]:
        try:
            while not self._stream.is_finished():
                piece = self._stream.process(data, output_buffer_limit=CHUNK_BYTES)
                yield piece
                data = b''
                # It also accepts more while it still holds output of what it was given.
                if self._stream.can_accept_more_data() and len(piece) < CHUNK_BYTES:
                    return
        except self._error as error:
            raise broken(self.name) from error

    @property
    def is_whole(self) -> bool:
        return self._stream.is_finished()


class Zstd:
    name = 'zstd'

    def __init__(self) -> None:
        self.decoded_bytes = 0
        self._zstd: Any = importlib.import_module(MODULES[self.name])
        self._stream = self._open()
        self._frames = 1

    def _open(self) -> Any:
        window = self._zstd.DecompressionParameter.window_log_max
        return self._zstd.ZstdDecompressor(options={window: ZSTD_WINDOW_LOG})

    def decode(self, data: bytes) -> Iterator[bytes]:
        try:
            while True:
                if self._stream.eof:
                    if not data:
                        return
                    self._frames = one_more(self._frames, self.name)
                    self._stream = self._open()
                yield self._stream.decompress(data, CHUNK_BYTES)
                data = self._stream.unused_data if self._stream.eof else b''
                if not data and (self._stream.eof or self._stream.needs_input):
                    return
        except self._zstd.ZstdError as error:
            raise broken(self.name) from error

    @property
    def is_whole(self) -> bool:
        return self._stream.eof


DECODERS: dict[str, Callable[[], BodyDecoder]] = {
    'gzip': Gzip,
    'x-gzip': Gzip,
    'deflate': Deflate,
    'br': Brotli,
    'zstd': Zstd,
}
# Packages of their own, without which the encoding is neither asked for nor understood.
MODULES = {
    'br': 'brotli',
    'zstd': 'compression.zstd' if sys.version_info >= (3, 14) else 'backports.zstd',
}


def accepted_encodings() -> str:
    """The value of Accept-Encoding: what can be decoded here."""
    names = ('gzip', 'deflate', 'br', 'zstd')
    return ', '.join(name for name in names if is_installed(MODULES.get(name)))


@functools.cache
def is_installed(module: str | None) -> bool:
    if module is None:
        return True
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def inflate(stream: Any, data: bytes, name: str) -> bytes:
    try:
        return stream.decompress(data, CHUNK_BYTES)
    except zlib.error as error:
        raise broken(name) from error


def one_more(count: int, name: str) -> int:
    if count >= MAX_MEMBERS:
        raise UndecodableBody(f'the {name} body has more than {MAX_MEMBERS} parts')
    return count + 1


def broken(name: str) -> UndecodableBody:
    return UndecodableBody(f'the body is not valid {name}')
