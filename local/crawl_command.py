"""The command `silkline crawl`: the whole way from a URL to its pages.

Owns the order: the stack of this directory is started unless it runs, the job enqueued, a worker
started unless one takes the job (`own_worker.py`), progress shown, the end told
(`crawl_summary.py`). The worker ends with the command, the stack stays: the pages are in it. With
`SUPABASE_URL` set, that project is the one, and only the worker is started.
"""

import asyncio
import os
import re
import signal
from contextlib import suppress
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID, uuid4

import typer

from local.detached import failures_told, start_detached
from local.directory import NAME, StackDirectory
from local.own_worker import OwnWorker
from worker.errors import ApiRefused, ExitCode
from worker.job_commands import read_options, run, shown
from worker.settings import Project, find_local_env

if TYPE_CHECKING:
    from worker.answers import Progress
    from worker.rpc import Rpc

commands = typer.Typer()

# Before all that waits: somebody sits before it.
PRIORITY = 100
# A host, perhaps a port and a path: what people type.
WITHOUT_SCHEME = re.compile(r'([\w.-]+)(:\d+)?([/?#].*)?$')


@commands.command()
def crawl(
    url: Annotated[str, typer.Argument(help='Where to begin.')],
    pages: Annotated[
        int | None,
        typer.Option('--pages', '--max-pages', min=1, help='How many URLs are fetched at most.'),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            '--option', '-o', metavar='KEY=VALUE', help='Any option of a crawl (docs/options.md).'
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar='DIR', help='Write a Markdown file per page there.', show_default=False
        ),
    ] = None,
    allow_network: Annotated[
        list[str] | None,
        typer.Option(
            metavar='CIDR',
            help='A network that the crawl may reach beside the public one, e.g. 127.0.0.0/8.',
        ),
    ] = None,
) -> None:
    """Crawl a site on this machine: starts what is not running, and shows what came of it.

    Ctrl-C stops the crawl and keeps its pages.
    """
    from worker import console

    address = with_scheme(url)
    if address != url:
        console.say(f'silkline: {url} is taken for {address}')
    networks = tuple(allow_network or [])
    if (mistake := mistake_of(networks)) is not None:
        console.say(f'silkline: {mistake}')
        raise typer.Exit(ExitCode.USAGE)
    if not os.environ.get('SUPABASE_URL'):
        start_stack()

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from worker.export import refuse_foreign

        if export is not None:
            # Before the crawl, which may take an hour.
            refuse_foreign(export)
        payload: dict[str, object] = {
            **({'max_pages': pages} if pages else {}),
            **read_options(option or []),
            'url': address,
        }
        return await Crawl(rpc, project, allow_networks=networks).run(payload, export)

    run(work)


def with_scheme(url: str) -> str:
    """What somebody means who leaves out the scheme: https, and http for this machine."""
    match = WITHOUT_SCHEME.match(url)
    if match is None:
        return url
    host = match[1]
    is_local = host == 'localhost' or re.fullmatch(r'[\d.]+', host)
    return f'{"http" if is_local else "https"}://{url}'


def mistake_of(networks: tuple[str, ...]) -> str | None:
    for network in networks:
        try:
            ip_network(network)
        except ValueError as error:
            return f'--allow-network {network}: {error}; a network is written like 127.0.0.0/8'
    return None


def start_stack() -> None:
    """Start the stack that the other commands would find from here; none yet: here."""
    from worker import console

    env = find_local_env(os.environ, Path.cwd())
    named = os.environ.get('SILKLINE_DIRECTORY')
    place = StackDirectory(env.parent if env else Path(named or NAME))
    with failures_told():
        place.make()
        if place.lock.wait_until_ready() is None:
            try:
                start_detached(place, [])
            except KeyboardInterrupt:
                console.say('silkline: the stack goes on starting; silkline down stops it')
                raise typer.Exit(ExitCode.INTERRUPTED) from None
            console.say('silkline: it goes on running after the crawl, with its pages')


class Crawl:
    """One job from its first moment to its last, with a worker of its own if need be."""

    def __init__(self, rpc: 'Rpc', project: Project, *, allow_networks: tuple[str, ...]) -> None:
        self._rpc = rpc
        self._project = project
        self._worker = OwnWorker(rpc, project, allow_networks=allow_networks)
        self._interrupted = asyncio.Event()
        self._main: asyncio.Task[object] | None = None

    async def run(self, payload: dict[str, object], export: Path | None) -> ExitCode:
        from local.crawl_summary import print_summary
        from worker import console
        from worker.page_commands import export_pages
        from worker.tasks import beside
        from worker.watch import watch

        self._main = asyncio.current_task()
        job = await self._rpc.enqueue_crawl_job(
            payload,
            kind='crawl',
            idempotency_key=str(uuid4()),
            # Others' jobs are not overtaken where there are others.
            priority=PRIORITY if self._project.is_local else None,
        )
        kept = 'the local stack' if self._project.is_local else 'the project of SUPABASE_URL'
        console.say(f'silkline: job {job.id} on {self._project.url}, {kept}')
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupt)
        try:
            with shown(as_json=False, as_data=False) as show:
                last = await beside(
                    watch(self._rpc, self._project, job.id, show),
                    self._worker.keep(job.id),
                    self._stop_when_interrupted(job.id),
                )
        except asyncio.CancelledError:
            console.say(f'silkline: ended at once; silkline show {job.id} tells what became of it')
            return ExitCode.INTERRUPTED
        await print_summary(
            self._rpc, last, url=str(payload['url']), is_exported=export is not None
        )
        if export is not None and last.pages_done:
            await export_pages(self._rpc, job.id, export)
        return self._exit_code(last)

    def _exit_code(self, last: 'Progress') -> ExitCode:
        if self._interrupted.is_set():
            return ExitCode.INTERRUPTED
        is_good = last.status == 'completed' and last.pages_done > 0
        return ExitCode.OK if is_good else ExitCode.NOT_COMPLETED

    def _interrupt(self) -> None:
        """Stop the job; the second time, end at once."""
        if not self._interrupted.is_set():
            self._interrupted.set()
            return
        self._worker.kill()
        if self._main is not None:
            self._main.cancel()

    async def _stop_when_interrupted(self, job_id: UUID) -> None:
        from worker import console

        await self._interrupted.wait()
        console.say('silkline: stopping; what was crawled is kept (Ctrl-C again ends at once)')
        with suppress(ApiRefused):
            # Refused if it has ended meanwhile.
            await self._rpc.stop_crawl_job(job_id)
