"""The commands of the local stack without the rest of `silkline`: `python -m local up`."""

from local.cli import commands

commands()
