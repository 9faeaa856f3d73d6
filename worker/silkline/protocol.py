"""What crosses the pipe between a supervisor and its runner, and how it is framed.

A frame is four bytes of length, big-endian, and one JSON object whose `type` names the message.
The fields of a result are those of a checkpoint's batch (docs/queue.md), checked here as the
database checks them, so that `saving.py` passes on what a runner sent without a second look.
msgspec instead of pydantic, because every runner pays for the import: 20 ms instead of 70.
"""

from typing import Annotated, Any, Literal, TypeAlias, cast
from uuid import UUID

from msgspec import DecodeError as MalformedJson
from msgspec import Meta, Struct, ValidationError, field, to_builtins
from msgspec.json import Decoder, Encoder
from msgspec.json import decode as decode_json

from silkline.errors import SilklineError

HEADER_BYTES = 4
MAX_FRAME_BYTES = 16 * 1024 * 1024

Verdict = Literal['continue', 'pause', 'stop', 'cancel', 'lost']
SkipReason = Literal[
    'robots',
    'out_of_scope',
    'excluded',
    'too_deep',
    'budget',
    'content_type',
    'too_large',
    'redirect',
    'canonical',
    'noindex',
    'trap',
    'invalid_url',
    'forbidden_address',
    'host_unavailable',
]
Url = Annotated[str, Meta(min_length=1, max_length=4096)]
HostName = Annotated[str, Meta(min_length=1, max_length=300)]
Depth = Annotated[int, Meta(ge=0, le=1000)]
HttpStatus = Annotated[int, Meta(ge=0, le=32767)]
Text = Annotated[str, Meta(max_length=10_000)]
Seconds = Annotated[float, Meta(ge=0, le=86_400)]
Bytes = Annotated[int, Meta(ge=0, le=2**53)]


class PipeError(SilklineError):
    """The other side does not keep to the protocol. The supervisor kills its runner."""


class FrameTooLarge(PipeError):
    """A frame is longer than `MAX_FRAME_BYTES`, or claims to be."""


class FrameMalformed(PipeError):
    """A frame holds no message: cut short, not JSON, no known type, or a field out of bounds."""


# Parts of messages


class Limits(Struct, frozen=True, kw_only=True):
    """What a runner may use. `isolation.py` and `process.py` say who holds it to each."""

    memory_bytes: int = 1024 * 1024 * 1024
    cpu_seconds: int = 3600
    open_files: int = 1024
    file_bytes: int = 256 * 1024 * 1024
    # 0: the kernel refuses every fork. More only for fetchers that need it: a browser.
    processes: int = 0
    # Running time; paused time does not count.
    wall_seconds: float = 3600.0
    # Without a message for so long, a runner hangs.
    stall_seconds: float = 60.0
    # From Done to the end of the process.
    exit_seconds: float = 5.0


class Task(Struct, frozen=True, kw_only=True):
    """A URL to fetch, as a checkpoint hands it out."""

    url_key: UUID
    url: str
    depth: int
    attempts: int = 1
    etag: str | None = None
    last_modified: str | None = None
    # What the stored page was made with: under other options it is no use.
    made_with: str | None = None


class StoredLinks(Struct, frozen=True, kw_only=True):
    """The links of a page as they were stored; none where no page was."""

    url_key: UUID
    links: list[Any]


class KnownHost(Struct, frozen=True, kw_only=True):
    """What all crawls together know of a host."""

    host: str
    robots_txt: str | None = None
    robots_status: int | None = None
    robots_age_seconds: float | None = None
    backoff_seconds: float | None = None
    error_streak: int = 0
    # Since any of it was learned.
    age_seconds: float | None = None


class FoundUrl(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A URL that a page links to."""

    url_key: UUID
    url: Url
    depth: Depth
    found_on: UUID | None = None
    skip_reason: SkipReason | None = None


class Page(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of a fetched page."""

    url: Url
    content_hash: Annotated[str, Meta(min_length=1, max_length=200)]
    http_status: HttpStatus | None = None
    title: str | None = None
    markdown: str | None = None
    links: list[Any] = field(default_factory=list[Any])
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    etag: Text | None = None
    last_modified: Text | None = None
    extractor: Text | None = None
    extractor_version: Text | None = None


# From the supervisor to the runner


class Start(Struct, frozen=True, kw_only=True, tag='start'):
    """The job. The first frame, and sent once."""

    job_id: UUID
    kind: str
    payload: dict[str, Any]
    limits: Limits = Limits()
    # Alive is sent so often.
    alive_seconds: float = 5.0
    # A runner whose parent is another one has lost its supervisor already.
    supervisor_pid: int = 0
    # What the operator lets crawls reach beside the public network.
    allow_networks: list[str] = field(default_factory=list[str])
    # Whether any are installed: looking for them takes a runner a tenth of its start.
    has_plugins: bool = True


class Tasks(Struct, frozen=True, kw_only=True, tag='tasks'):
    """The answer to each `WantTasks`: that of the checkpoint, which decides `drained`."""

    tasks: list[Task] = field(default_factory=list[Task])
    drained: bool = False
    pending: int = 0
    next_in_seconds: float | None = None
    links: list[StoredLinks] = field(default_factory=list[StoredLinks])
    hosts: list[KnownHost] = field(default_factory=list[KnownHost])
    # Where start URLs were redirected to, in this and in earlier attempts.
    redirected_starts: list[str] = field(default_factory=list[str])
    command: Verdict = 'continue'


class Command(Struct, frozen=True, kw_only=True, tag='command'):
    """What the user wants now. `pause` and `stop`: finish what is open, then `Done`."""

    command: Verdict


# From the runner to the supervisor


class Ready(Struct, frozen=True, kw_only=True, tag='ready'):
    """The limits are in place and the crawl begins. `process.py` keeps it to itself."""

    pid: int
    # Whether the kernel lets this runner have children.
    can_fork: bool


class Begun(Struct, frozen=True, kw_only=True, tag='begun'):
    """A URL is being fetched: suspected, should the process die before it has ended."""

    url_key: UUID
    url: Url


class Finished(Struct, frozen=True, kw_only=True, omit_defaults=True, tag='finished'):
    """A URL has ended. Sent after the `Discovered` of its links, so that none can be lost."""

    url_key: UUID
    status: Literal['done', 'error', 'skipped']
    http_status: HttpStatus | None = None
    bytes: Bytes | None = None
    skip_reason: SkipReason | None = None
    error: Text | None = None
    not_modified: bool | None = None
    # Whether nothing was asked for: then it costs no page of the budget.
    unfetched: bool | None = None
    # The page that this one names as the original: it may be dropped for that one.
    canonical_key: UUID | None = None
    page: Page | None = None

    def __post_init__(self) -> None:
        if (self.status == 'skipped') != (self.skip_reason is not None):
            raise ValueError('skipped has a skip_reason, and nothing else has')


class Retried(Struct, frozen=True, kw_only=True, omit_defaults=True, tag='retried'):
    """A URL is to be fetched again, later."""

    url_key: UUID
    after_seconds: Seconds
    error: Text
    http_status: HttpStatus | None = None


class Discovered(Struct, frozen=True, kw_only=True, tag='discovered'):
    """URLs that were found. Split longer lists."""

    urls: Annotated[list[FoundUrl], Meta(max_length=5000)]


class RedirectedStart(Struct, frozen=True, kw_only=True, tag='redirected_start'):
    """A start URL leads here: the scope of the crawl moves with it."""

    url: Url


class HostFact(Struct, frozen=True, kw_only=True, omit_defaults=True, tag='host_fact'):
    """What this crawl learned about a host."""

    host: HostName
    robots_txt: Annotated[str, Meta(max_length=524_288)] | None = None
    robots_status: HttpStatus | None = None
    crawl_delay_seconds: Annotated[float, Meta(ge=0, le=3600)] | None = None
    backoff_seconds: Seconds | None = None
    error_streak: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    last_error: Text | None = None


class WantTasks(Struct, frozen=True, kw_only=True, omit_defaults=True, tag='want_tasks'):
    """Check in all that was sent so far and answer with `Tasks`, of up to `count` URLs."""

    count: Annotated[int, Meta(ge=0, le=1000)]
    # Hosts whose facts it shall bring, and unchanged pages whose stored links it shall bring.
    hosts: Annotated[list[HostName], Meta(max_length=100)] = []
    links: Annotated[list[UUID], Meta(max_length=500)] = []


class Alive(Struct, frozen=True, kw_only=True, tag='alive'):
    """Nothing to tell, and not stuck. `process.py` keeps it to itself."""


class Log(Struct, frozen=True, kw_only=True, tag='log'):
    """A line for the supervisor's log."""

    level: Literal['debug', 'info', 'warning', 'error']
    message: Text


class Done(Struct, frozen=True, kw_only=True, tag='done'):
    """The last message: everything is handed in, and the process ends."""

    # drained: complete the job. pause, stop: that command was obeyed; release the job. later: a
    # site wants patience; release the job for so long.
    reason: Literal['drained', 'pause', 'stop', 'later']
    result: dict[str, Any] = field(default_factory=dict[str, Any])
    after_seconds: Annotated[int, Meta(ge=1, le=86_400)] | None = None

    def __post_init__(self) -> None:
        if (self.reason == 'later') != (self.after_seconds is not None):
            raise ValueError('later says when, and nothing else does')


class Failed(Struct, frozen=True, kw_only=True, tag='failed'):
    """The last message: the crawl broke."""

    error_code: Literal['failed', 'oom', 'payload']
    message: Text
    is_retryable: bool = True


ToRunner: TypeAlias = Start | Tasks | Command
FromRunner: TypeAlias = (
    Ready
    | Begun
    | Finished
    | Retried
    | Discovered
    | RedirectedStart
    | HostFact
    | WantTasks
    | Alive
    | Log
    | Done
    | Failed
)

encoder = Encoder()
to_runner: Decoder[ToRunner] = Decoder(ToRunner)
from_runner: Decoder[FromRunner] = Decoder(FromRunner)


def encode(message: ToRunner | FromRunner) -> bytes:
    """One frame. Text that Postgres cannot hold (NUL, half surrogate pairs) is replaced."""
    try:
        body = encoder.encode(message)
    except UnicodeEncodeError:
        body = encoder.encode(storable(to_builtins(message, str_keys=True)))
    else:
        if b'\\u0000' in body:
            body = encoder.encode(storable(to_builtins(message, str_keys=True)))
    if len(body) > MAX_FRAME_BYTES:
        raise FrameTooLarge(f'a {type(message).__name__} of {len(body)} bytes')
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
    """How many bytes follow; refused before any of them is read."""
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
