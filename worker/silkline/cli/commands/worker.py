"""The command `silkline worker`."""

from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal

import typer

from silkline.errors import SettingsError, SilklineError
from silkline.settings import read_project

commands = typer.Typer()


@commands.command()
def worker(
    slots: Annotated[int, typer.Option(min=1, max=1000, help='How many jobs at a time.')] = 4,
    kinds: Annotated[
        list[str] | None, typer.Option(help='Only jobs of these kinds.', show_default='all')
    ] = None,
    burst: Annotated[
        bool, typer.Option('--burst', help='End when there is nothing left to claim.')
    ] = False,
    once: Annotated[bool, typer.Option('--once', help='End after one job.')] = False,
    grace: Annotated[
        float, typer.Option(min=0, help='Seconds for handing in when it is told to stop.')
    ] = 20.0,
    allow_network: Annotated[
        list[str] | None,
        typer.Option(
            metavar='CIDR',
            envvar='SILKLINE_ALLOW_NETWORKS',
            help='A network that crawls may reach beside the public one, such as 10.1.0.0/16.',
            show_default='none',
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help='Where it notes its leases, for its successor.', show_default=False),
    ] = None,
    log_format: Annotated[
        Literal['text', 'json'], typer.Option(help='Logs for people, or one JSON object per line.')
    ] = 'text',
    log_level: Annotated[
        Literal['debug', 'info', 'warning', 'error'], typer.Option(help='What is logged at least.')
    ] = 'info',
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help='Serve /metrics and /healthz; 0 chooses.', show_default=False
        ),
    ] = None,
    metrics_host: Annotated[str, typer.Option(help='The address to serve them on.')] = '127.0.0.1',
) -> None:
    """Claim jobs and run each in a process of its own.

    Ctrl-C hands them in, to go on elsewhere; twice ends at once.
    """
    from silkline.supervisor.logs import set_up_logs
    from silkline.supervisor.worker import Options, run_worker, state_directory

    try:
        project = read_project()
        set_up_logs(
            log_format, log_level.upper(), secrets=filter(None, (project.key, project.token))
        )
        run_worker(
            project,
            Options(
                slots=slots,
                kinds=tuple(kinds) if kinds else None,
                grace_seconds=grace,
                ends_when_idle=burst,
                ends_after_one=once,
                metrics_host=metrics_host,
                metrics_port=metrics_port,
                state_directory=state or state_directory(project),
                allow_networks=read_networks(allow_network or []),
            ),
        )
    except SilklineError as error:
        typer.echo(f'silkline: {error}', err=True)
        raise typer.Exit(error.exit_code) from error


def read_networks(words: list[str]) -> tuple[str, ...]:
    """Each of them, or several with commas or spaces between, in the form that crawls get."""
    networks: list[str] = []
    for text in ' '.join(words).replace(',', ' ').split():
        try:
            networks.append(str(ip_network(text)))
        except ValueError as error:
            raise SettingsError(
                f'--allow-network {text}: {error}; a network is written like 127.0.0.0/8'
            ) from error
    return tuple(networks)
