"""`python -m silkline_local up`: the commands of the local stack without the rest of `silkline`."""

from silkline_local.cli import commands

commands()
