"""The messages that cross the pipe between a supervisor and its runner.

The fields of a result are those of a checkpoint batch (docs/reference/checkpoint.md), with the
bounds of the database. A runner's messages are validated when they are decoded, so the supervisor
passes results on as they are. How messages are framed is in `framing.py`.
msgspec instead of pydantic, because every runner pays for the import: 20 ms instead of 70.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeAlias
from uuid import UUID

from msgspec import Meta, Struct, field

if TYPE_CHECKING:
    import asyncio

# Exit codes of a runner: it lost its supervisor; it ran out of memory.
EXIT_LOST = 70
EXIT_OUT_OF_MEMORY = 79

# What the queue wants of a leased job.
Command = Literal['continue', 'pause', 'stop', 'cancel', 'lost']
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
# What may be wrong with the Markdown of a stored page; the sentences are in `cli/wording.py`.
PageWarning = Literal[
    'cut',
    'needs_browser',
    'nothing_kept',
    'little_kept',
    'headings_lost',
    'code_lost',
]
# Links that the rules refuse for these reasons are counted, not sent.
RefusedReason = Literal['out_of_scope', 'excluded', 'invalid_url']
Url = Annotated[str, Meta(min_length=1, max_length=4096)]
HostName = Annotated[str, Meta(min_length=1, max_length=300)]
Depth = Annotated[int, Meta(ge=0, le=1000)]
HttpStatus = Annotated[int, Meta(ge=0, le=32767)]
Text = Annotated[str, Meta(max_length=10_000)]
Seconds = Annotated[float, Meta(ge=0, le=86_400)]
Bytes = Annotated[int, Meta(ge=0, le=2**53)]


# Parts of messages


class Limits(Struct, frozen=True, kw_only=True):
    """What a runner may use. `isolation.py` and `process.py` enforce it."""

    memory_bytes: int = 1024 * 1024 * 1024
    cpu_seconds: int = 3600
    open_files: int = 1024
    file_bytes: int = 256 * 1024 * 1024
    # 0: the kernel refuses every fork. More only for fetchers that need it, such as a browser.
    processes: int = 0
    # Running time: pauses do not count.
    wall_seconds: float = 3600.0
    # A runner that sends nothing for this long is considered hung.
    stall_seconds: float = 60.0
    # From Done to the exit of the process.
    exit_seconds: float = 5.0


class Task(Struct, frozen=True, kw_only=True):
    """A URL to fetch, as a checkpoint leases it."""

    url_key: UUID
    url: str
    depth: int
    attempts: int = 1
    etag: str | None = None
    last_modified: str | None = None
    # The options that the stored page was made with. With other options it cannot be reused.
    made_with: str | None = None


class StoredLinks(Struct, frozen=True, kw_only=True):
    """The stored links of a page; empty if no page is stored."""

    url_key: UUID
    links: list[Any]


class KnownHost(Struct, frozen=True, kw_only=True):
    """What all crawls together know about a host."""

    host: str
    robots_txt: str | None = None
    robots_status: int | None = None
    robots_age_seconds: float | None = None
    backoff_seconds: float | None = None
    error_streak: int = 0
    # Since the last of these facts was learned.
    age_seconds: float | None = None


class FoundUrl(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A URL that a page links to."""

    url_key: UUID
    url: Url
    depth: Depth
    found_on: UUID | None = None
    skip_reason: SkipReason | None = None


class Quality(Struct, frozen=True, kw_only=True):
    """What a page shows and what its Markdown has. A warning asks the reader to compare them."""

    # The share of the visible text that was kept, from 0 to 1; navigation counts as text.
    kept: float
    headings: int
    headings_kept: int
    code_blocks: int
    code_blocks_kept: int
    is_cut: bool = False
    needs_browser: bool = False
    warnings: tuple[PageWarning, ...] = ()


class Page(Struct, kw_only=True, omit_defaults=True):
    """A page as it is stored, and as plugins see it before that.

    A page hook may change `title`, `markdown`, `links` and `metadata`. The crawl fills in all
    other fields after the hooks.
    """

    url: Url
    # Filled in last: a page without it cannot be sent.
    content_hash: Annotated[str, Meta(min_length=1, max_length=200)] = ''
    http_status: HttpStatus | None = None
    title: str | None = None
    markdown: str | None = None
    links: list[str] = field(default_factory=list[str])
    # JSON, and small: it is stored with the page.
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    etag: Text | None = None
    last_modified: Text | None = None
    extractor: Text | None = None
    extractor_version: Text | None = None
    # None if it is unknown: only the built-in extractor compares the page with its Markdown.
    quality: Quality | None = None


# From the supervisor to the runner


class Start(Struct, frozen=True, kw_only=True, tag='start'):
    """The job: the first message, sent once."""

    job_id: UUID
    kind: str
    payload: dict[str, Any]
    limits: Limits = Limits()
    # How often the runner sends Alive.
    alive_seconds: float = 5.0
    # A runner whose parent has another pid has already lost its supervisor.
    supervisor_pid: int = 0
    # Networks that the operator lets crawls reach besides the public internet.
    allow_networks: list[str] = field(default_factory=list[str])
    # Whether plugins are installed: looking for them takes a tenth of a runner's start-up.
    has_plugins: bool = True
    # Whether a second runner of this lease could render pages; it gets the URLs in `tasks`.
    can_render: bool = False
    tasks: list[Task] = field(default_factory=list[Task])


class Tasks(Struct, frozen=True, kw_only=True, tag='tasks'):
    """The answer to a `WantTasks`, as the checkpoint function returns it."""

    tasks: list[Task] = field(default_factory=list[Task])
    drained: bool = False
    pending: int = 0
    next_in_seconds: float | None = None
    links: list[StoredLinks] = field(default_factory=list[StoredLinks])
    hosts: list[KnownHost] = field(default_factory=list[KnownHost])
    # Where start URLs redirected to, in this and in earlier attempts.
    redirected_starts: list[str] = field(default_factory=list[str])
    command: Command = 'continue'


class NewCommand(Struct, frozen=True, kw_only=True, tag='command'):
    """What the user wants now. `pause` and `stop`: finish open requests, then send `Done`."""

    command: Command


# From the runner to the supervisor


class Ready(Struct, frozen=True, kw_only=True, tag='ready'):
    """The limits are in place and the crawl begins. Handled in `process.py`."""

    pid: int
    # Whether the kernel lets this runner have children.
    can_fork: bool


class Begun(Struct, frozen=True, kw_only=True, tag='begun'):
    """A URL is being fetched: a suspect if the process dies before the URL ends."""

    url_key: UUID
    url: Url


class Finished(Struct, frozen=True, kw_only=True, omit_defaults=True, tag='finished'):
    """A URL has ended. Sent after the `Discovered` of its links, so that no link is lost."""

    url_key: UUID
    status: Literal['done', 'error', 'skipped']
    http_status: HttpStatus | None = None
    bytes: Bytes | None = None
    skip_reason: SkipReason | None = None
    error: Text | None = None
    not_modified: bool | None = None
    # No request was made for it, so it does not count against the page budget.
    unfetched: bool | None = None
    # The page that this one names as canonical; it may be dropped in favour of that one.
    canonical_key: UUID | None = None
    page: Page | None = None

    def __post_init__(self) -> None:
        if (self.status == 'skipped') != (self.skip_reason is not None):
            raise ValueError('skip_reason is for status skipped, which must have one')
        if self.page is not None and not self.page.content_hash:
            raise ValueError('the page has no content_hash')


class Retried(Struct, frozen=True, kw_only=True, omit_defaults=True, tag='retried'):
    """A URL has to be fetched again later."""

    url_key: UUID
    after_seconds: Seconds
    error: Text
    http_status: HttpStatus | None = None


class Discovered(Struct, frozen=True, kw_only=True, tag='discovered'):
    """URLs that were found. Longer lists are split."""

    urls: Annotated[list[FoundUrl], Meta(max_length=5000)]


class LinksRefused(Struct, frozen=True, kw_only=True, tag='links_refused'):
    """How many links of a page the rules refuse: a row for each would outnumber the pages."""

    counts: dict[RefusedReason, Annotated[int, Meta(ge=1, le=1_000_000)]]


class RedirectedStart(Struct, frozen=True, kw_only=True, tag='redirected_start'):
    """A start URL redirects here; the scope of the crawl follows it."""

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
    """Save everything sent so far and answer with `Tasks`, up to `count` URLs."""

    count: Annotated[int, Meta(ge=0, le=1000)]
    # Hosts whose facts, and unchanged pages whose stored links, the answer should include.
    hosts: Annotated[list[HostName], Meta(max_length=100)] = []
    links: Annotated[list[UUID], Meta(max_length=500)] = []


class Alive(Struct, frozen=True, kw_only=True, tag='alive'):
    """Nothing to report, but not stuck. Handled in `process.py`."""


class Log(Struct, frozen=True, kw_only=True, tag='log'):
    """A line for the supervisor's log."""

    level: Literal['debug', 'info', 'warning', 'error']
    message: Text


class Done(Struct, frozen=True, kw_only=True, tag='done'):
    """The last message: everything was sent, and the process exits."""

    # drained: complete the job. pause, stop: the command was obeyed, release the job. later: the
    # site asked for a pause, release the job until `after_seconds` have passed. render: scripts
    # draw its pages, start a runner with a browser on `tasks`, which are leased and have not ended.
    reason: Literal['drained', 'pause', 'stop', 'later', 'render']
    result: dict[str, Any] = field(default_factory=dict[str, Any])
    after_seconds: Annotated[int, Meta(ge=1, le=86_400)] | None = None
    tasks: Annotated[list[Task], Meta(max_length=5000)] = []

    def __post_init__(self) -> None:
        if (self.reason == 'later') != (self.after_seconds is not None):
            raise ValueError('after_seconds is for reason later, which must have it')


class Failed(Struct, frozen=True, kw_only=True, tag='failed'):
    """The last message: the crawl failed."""

    error_code: Literal['failed', 'oom', 'payload']
    message: Text
    is_retryable: bool = True


ToRunner: TypeAlias = Start | Tasks | NewCommand
FromRunner: TypeAlias = (
    Ready
    | Begun
    | Finished
    | Retried
    | Discovered
    | LinksRefused
    | RedirectedStart
    | HostFact
    | WantTasks
    | Alive
    | Log
    | Done
    | Failed
)


class Channel(Protocol):
    """The supervisor, as a crawl sees it; `runner/channel.py` implements it over the pipe."""

    @property
    def command(self) -> Command: ...
    @property
    def leaving(self) -> 'asyncio.Event':
        """Set while the command is not `continue`."""
        ...

    async def send(self, message: FromRunner) -> None: ...
    async def want_tasks(self, wish: WantTasks) -> Tasks: ...
