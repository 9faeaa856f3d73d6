"""Every error of the local stack that leaves the package.

silkline.errors.SilklineError
└── StackError            the stack cannot be started, stopped or used
    ├── AlreadyRunning    another process runs the stack of this directory (lock.py)
    ├── KeysError         keys.json cannot be read (keys.py)
    ├── PostgresError     the database server cannot be started or stopped (postgres/server.py)
    └── MigrationError    a migration failed and was rolled back (postgres/migrations.py)

Commands print the message, which says what to do, and exit with code 1.
"""

from silkline.errors import SilklineError


class StackError(SilklineError):
    """A command exits."""


class AlreadyRunning(StackError):
    """`silkline up` prints where the running stack is; exit code 0 unless it was given options."""


class KeysError(StackError):
    """`silkline up` exits before it starts anything."""


class PostgresError(StackError):
    """`silkline up` exits; the data is as it was."""


class MigrationError(StackError):
    """`silkline up` exits; the migrations before the failed one stay applied."""
