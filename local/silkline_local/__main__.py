"""The commands of the local stack without the rest of `silkline`: `python -m silkline_local up`."""

from silkline_local.cli import commands

commands()
