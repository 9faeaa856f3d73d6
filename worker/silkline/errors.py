"""What can go wrong, and what is done about it.

SilklineError
├── SettingsError     the environment does not say where the project is, or how to enter it
├── NoSuchJob         a word names no job, or several
├── ApiRefused        the API understood and said no
├── ApiUnavailable    the API could not be asked, though it was tried again
├── PipeError         a runner does not keep to the protocol (pipe.py)
└── CannotStart       a runner could not be started (process.py)
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ends. Documented in docs/reference/cli.md."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    UNAVAILABLE = 3
    # The job that was watched ended, but not as completed; or a crawl stored no page.
    NOT_COMPLETED = 4
    INTERRUPTED = 130


class SilklineError(Exception):
    """The base of all that is told to the user in one sentence."""

    exit_code = ExitCode.REFUSED


class SettingsError(SilklineError):
    """A command ends; the message names the variable."""

    exit_code = ExitCode.USAGE


class NoSuchJob(SilklineError):
    """A command ends; the message tells where the ids are, or which jobs may be meant."""


class ApiRefused(SilklineError):
    """A command ends with the API's own words; a worker decides by `code`, never by the text."""

    def __init__(self, code: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f'{self.message}\n{self.hint}'


class ApiUnavailable(SilklineError):
    """A command ends; a worker goes on and tries again later."""

    exit_code = ExitCode.UNAVAILABLE
