"""Run a command that refuses to run as root.

A program of its own, run by path (`python -I -S unprivileged.py ...`), that uses only the standard
library. It becomes the command by exec, so the process id stays the same. `programs.py` chooses
between namespace and account; this file only carries it out. It exits with 125 if the kernel
refuses.

    unprivileged.py [--namespace ACCOUNT | --account ACCOUNT] [--parent PID] -- COMMAND ...
"""

import ctypes
import os
import pwd
import signal
import sys

REFUSED = 125
CLONE_NEWUSER = 0x10000000
PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    separator = arguments.index('--')
    options = dict(zip(arguments[:separator:2], arguments[1:separator:2], strict=True))
    command = arguments[separator + 1 :]
    try:
        if '--namespace' in options:
            enter_namespace(pwd.getpwnam(options['--namespace']))
        if '--account' in options:
            become(pwd.getpwnam(options['--account']))
    except OSError as error:
        sys.stderr.write(f'unprivileged.py: {error}\n')
        sys.exit(REFUSED)
    # Last, because the kernel clears the signal when credentials change.
    if '--parent' in options:
        die_with(int(options['--parent']))
    try:
        os.execv(command[0], command)  # noqa: S606 - the caller names the program, no shell
    except OSError as error:
        sys.stderr.write(f'unprivileged.py: {command[0]}: {error.strerror}\n')
        sys.exit(126)


def enter_namespace(account: pwd.struct_passwd) -> None:
    """Make root look like `account` to this process, which still owns root's files.

    The account must exist, because initdb looks up its own user. No capability survives the
    exec, because the user inside is not 0.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(CLONE_NEWUSER) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f'no user namespace: {os.strerror(number)}')
    for name, line in (
        ('setgroups', 'deny'),
        ('uid_map', f'{account.pw_uid} {user} 1'),
        ('gid_map', f'{account.pw_gid} {group} 1'),
    ):
        with open(f'/proc/self/{name}', 'w') as file:
            file.write(line)


def become(account: pwd.struct_passwd) -> None:
    os.setgroups([])
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)


def die_with(parent: int) -> None:
    """Have the kernel send SIGINT, Postgres's fast shutdown, when the parent ends."""
    if sys.platform != 'linux':
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)
    if os.getppid() != parent:
        sys.exit(REFUSED)


if __name__ == '__main__':
    main(sys.argv[1:])
