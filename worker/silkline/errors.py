"""Every error that leaves a room, and what is done about it.

SilklineError                  one sentence for the user; commands print it and exit
├── SettingsError              the environment or an argument is wrong
├── NoSuchJob                  an id matches no job, or several
├── ApiRefused                 the API answered and said no
├── ApiUnavailable             the API could not be reached, even after retries
├── PipeError                  the other side of the pipe broke the protocol (framing.py)
│   ├── FrameTooLarge
│   └── FrameMalformed
├── CannotStart                a runner could not be started (supervisor/process.py)
├── CrawlError                 a job asks for what this worker does not have (crawl/options.py)
│   └── BrowserMissing         it needs a browser (crawl/fetchers/chromium.py)
├── EgressError                a request got no usable response (crawl/responses.py)
│   ├── Refused                the rules of the egress forbid it
│   ├── NoResponse             the server did not answer, or not in HTTP
│   ├── TooLarge               the body is larger than allowed
│   └── UndecodableBody        the body is not in the encoding that its headers name
└── StackError                 the local stack cannot start or stop (silkline_local)
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ends. Documented in docs/reference/errors.md."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    UNAVAILABLE = 3
    # The job that was watched ended, but not as completed; or a crawl stored no page.
    NOT_COMPLETED = 4
    INTERRUPTED = 130


class SilklineError(Exception):
    """The root: its message is one sentence for the user."""

    exit_code = ExitCode.REFUSED


class SettingsError(SilklineError):
    """A command exits; the message names the variable or the argument."""

    exit_code = ExitCode.USAGE


class NoSuchJob(SilklineError):
    """A command exits; the message says where the ids are, or which jobs match."""


class ApiRefused(SilklineError):
    """A command exits with the API's own words; a worker decides by `code`, never by the text."""

    def __init__(self, code: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f'{self.message}\n{self.hint}'


class ApiUnavailable(SilklineError):
    """A command exits; a worker goes on and retries later."""

    exit_code = ExitCode.UNAVAILABLE
