"""The command `silkline worker`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from silkline.cli.arguments import read_networks
from silkline.cli.runtime import exit_on_error
from silkline.settings import read_project

commands = typer.Typer()


@commands.command()
def worker(
    slots: Annotated[
        int, typer.Option(min=1, max=1000, help='Number of jobs to run at the same time.')
    ] = 4,
    kinds: Annotated[
        list[str] | None,
        typer.Option(help='Claim only jobs of this kind; may be repeated.', show_default='all'),
    ] = None,
    burst: Annotated[
        bool, typer.Option('--burst', help='Exit when there is nothing left to claim.')
    ] = False,
    once: Annotated[bool, typer.Option('--once', help='Exit after one job.')] = False,
    grace: Annotated[
        float, typer.Option(min=0, help='Seconds that jobs get to save when the worker stops.')
    ] = 20.0,
    allow_network: Annotated[
        list[str] | None,
        typer.Option(
            metavar='CIDR',
            envvar='SILKLINE_ALLOW_NETWORKS',
            help='A private network that crawls may reach, e.g. 10.1.0.0/16.',
            show_default='none',
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help='Directory for the lease file, which the next worker here reads.',
            show_default=False,
        ),
    ] = None,
    log_format: Annotated[
        Literal['text', 'json'], typer.Option(help='Plain text, or one JSON object per line.')
    ] = 'text',
    log_level: Annotated[
        Literal['debug', 'info', 'warning', 'error'],
        typer.Option(help='Lowest level that is logged.'),
    ] = 'info',
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help='Serve /metrics and /healthz on this port; 0 picks a free one.',
            show_default=False,
        ),
    ] = None,
    metrics_host: Annotated[str, typer.Option(help='Address to serve metrics on.')] = '127.0.0.1',
) -> None:
    """Claim jobs and run each in its own process.

    Ctrl-C saves the jobs and releases them to other workers; a second Ctrl-C exits at once.
    """
    import asyncio

    from silkline.supervisor.lease_files import default_directory
    from silkline.supervisor.logs import set_up_logs
    from silkline.supervisor.worker import Worker, WorkerOptions

    with exit_on_error():
        project = read_project()
        set_up_logs(
            log_format, log_level.upper(), secrets=filter(None, (project.key, project.token))
        )
        options = WorkerOptions(
            slots=slots,
            kinds=tuple(kinds) if kinds else None,
            grace_seconds=grace,
            ends_when_idle=burst,
            ends_after_one=once,
            metrics_host=metrics_host,
            metrics_port=metrics_port,
            lease_directory=state or default_directory(project),
            allow_networks=read_networks(allow_network or []),
        )
        asyncio.run(Worker(project, options).run())
