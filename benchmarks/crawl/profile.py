"""Show where the time of a crawl goes: `python -m benchmarks.crawl.profile [--markdown main]`.

Runs the engine in this process, on a site of the benchmark, with a frontier in memory instead of
supervisor and database: first without a profiler, for its speed, then under cProfile.
`benchmarks.crawl --profile` samples the real processes instead, with py-spy if it is installed.
"""

import argparse
import asyncio
import cProfile
import os
import pstats
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID, uuid4

from benchmarks.crawl.bench import CONCURRENCY, TEMPLATES, Bench, Markdown, our_name
from benchmarks.crawl.peers import ENVIRONMENT
from benchmarks.crawl.site import write_site
from benchmarks.crawl.site_server import run_server
from benchmarks.shared.report import number
from silkline import framing, protocol

SAMPLES_PER_SECOND = 200
LINES = 30


# The engine alone


class MemoryChannel:
    """A supervisor whose queue is a dictionary. Messages are encoded, as for a real pipe."""

    def __init__(self, *, answer_seconds: float) -> None:
        self.command: protocol.Command = 'continue'
        self.leaving = asyncio.Event()
        self.ended: Counter[str] = Counter()
        self.bytes_sent = 0
        self._answer_seconds = answer_seconds
        self._tasks: dict[UUID, protocol.Task] = {}
        self._ready: deque[UUID] = deque()
        self._open: set[UUID] = set()

    async def send(self, message: protocol.FromRunner) -> None:
        self.bytes_sent += len(framing.encode(message))
        match message:
            case protocol.Discovered(urls=urls):
                for found in urls:
                    self._find(found)
            case protocol.Finished(url_key=key, status=status):
                self._open.discard(key)
                self.ended[status] += 1
            case protocol.Retried(url_key=key):
                self._open.discard(key)
                self._ready.append(key)
            case _:
                pass

    def _find(self, found: protocol.FoundUrl) -> None:
        if found.url_key in self._tasks:
            return
        task = protocol.Task(url_key=found.url_key, url=found.url, depth=found.depth)
        self._tasks[found.url_key] = task
        if found.skip_reason is None:
            self._ready.append(found.url_key)

    async def want_tasks(self, wish: protocol.WantTasks) -> protocol.Tasks:
        await self.send(wish)
        await asyncio.sleep(self._answer_seconds)
        keys = [self._ready.popleft() for _ in range(min(wish.count, len(self._ready)))]
        self._open.update(keys)
        answer = protocol.Tasks(
            tasks=[self._tasks[key] for key in keys],
            pending=len(self._ready),
            drained=not (self._open or self._ready),
        )
        frame = framing.encode(answer)
        decoded = framing.decode_to_runner(frame[framing.HEADER_BYTES :])
        assert isinstance(decoded, protocol.Tasks)
        return decoded


def crawl_here(url: str, *, markdown: Markdown, answer_seconds: float) -> MemoryChannel:
    """Run one job in this process, to its end."""
    import uvloop

    from silkline.crawl.engine.job import run_job

    async def crawl() -> MemoryChannel:
        channel = MemoryChannel(answer_seconds=answer_seconds)
        start = protocol.Start(
            job_id=uuid4(),
            kind='crawl',
            payload={
                'url': url,
                'fetcher': 'http',
                'concurrency': CONCURRENCY,
                'markdown': markdown,
            },
            allow_networks=['127.0.0.0/8'],
        )
        await run_job(channel, start)
        return channel

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        work: Coroutine[Any, Any, MemoryChannel] = crawl()
        return runner.run(work)


def main() -> None:
    parser = argparse.ArgumentParser(prog='python -m benchmarks.crawl.profile', description=__doc__)
    parser.add_argument('--markdown', choices=('none', 'main'), default='none')
    parser.add_argument('--site', choices=TEMPLATES, default='guide')
    parser.add_argument('--pages', type=int, default=1500)
    parser.add_argument(
        '--rounds', type=int, default=2, help='rounds without a profiler, before the profile'
    )
    parser.add_argument('--answer-ms', type=float, default=15, help='duration of a checkpoint')
    parser.add_argument('--sort', default='tottime', help='column of pstats to sort by')
    parser.add_argument('--no-profile', action='store_true', help='only measure the speed')
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[1:2] or cores)
    with TemporaryDirectory(prefix='silkline-bench-') as name:
        with run_server(Path(name) / 'sites') as server:
            write_site(server.root(0), arguments.pages, TEMPLATES[arguments.site])
            os.sched_setaffinity(0, cores[:1])

            def crawl() -> MemoryChannel:
                return crawl_here(
                    server.url(0, 1),
                    markdown=arguments.markdown,
                    answer_seconds=arguments.answer_ms / 1000,
                )

            for _ in range(arguments.rounds):
                time_one(crawl)
            if not arguments.no_profile:
                profile = cProfile.Profile()
                profile.runcall(crawl)
                stats = pstats.Stats(profile)
                stats.sort_stats(arguments.sort).print_stats(LINES)


def time_one(crawl: Callable[[], MemoryChannel]) -> None:
    began_at, used = time.perf_counter(), time.process_time()
    channel = crawl()
    seconds, used = time.perf_counter() - began_at, time.process_time() - used
    pages = channel.ended['done']
    print(
        f'{dict(channel.ended)}: {number(pages / seconds, "pages/s")},'
        f' {number(used / pages * 1000, "ms of processor a page")},'
        f' {number(channel.bytes_sent / pages / 1000, "KB sent a page")}',
        flush=True,
    )


# The real processes


class Sampler:
    """Samples one process with py-spy, until it ends or `stop` is called."""

    def __init__(self, name: str, process: int, output: Path) -> None:
        self.name = name
        self._output = output
        program = find_py_spy()
        assert program is not None
        self._process = subprocess.Popen(
            [
                program,
                'record',
                '--format=raw',
                f'--rate={SAMPLES_PER_SECOND}',
                f'--output={output}',
                f'--pid={process}',
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def stop(self) -> str:
        """Stop, and return the functions that took most time, alone and with their callees."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        self._process.wait()
        if not self._output.exists():
            return f'{self.name}: not sampled'
        return summarize(self.name, self._output.read_text())


def find_py_spy() -> str | None:
    return shutil.which('py-spy', path=f'{ENVIRONMENT / "bin"}:{os.environ.get("PATH", "")}')


def summarize(name: str, stacks: str) -> str:
    """Each line of `stacks` has frames, outermost first, separated by semicolons, and a count."""
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    everything = 0
    for line in stacks.splitlines():
        frames, _, count = line.rpartition(' ')
        # Without the line number, so that a function is one entry.
        functions = [re.sub(r':\d+\)$', ')', frame) for frame in frames.split(';')]
        own[functions[-1]] += int(count)
        total.update(dict.fromkeys(functions, int(count)))
        everything += int(count)
    # Functions that are in every sample are of no interest.
    for function, count in list(total.items()):
        if count == everything:
            del total[function]
    lines = [f'{name}: {everything} samples of {1000 / SAMPLES_PER_SECOND:g} ms']
    for title, counts in (('alone', own), ('with callees', total)):
        lines.append(f'  {title}')
        lines += [
            f'  {count / max(everything, 1):6.1%}  {function}'
            for function, count in counts.most_common(LINES)
        ]
    return '\n'.join(lines)


def profile_all(bench: Bench) -> None:
    """Crawl once in each way, and print what each process spent its time on."""
    if find_py_spy() is None:
        print('py-spy is not installed: only processor seconds are shown.')
        print('python -m benchmarks.crawl.profile shows more.')
    bench.warm_up()
    ways: tuple[Markdown, ...] = ('none', 'main')
    for markdown in ways:
        samplers: list[Sampler] = []

        def watch(
            runner: int, markdown: Markdown = markdown, samplers: list[Sampler] = samplers
        ) -> None:
            if find_py_spy() is None:
                return
            # Before exec it is a copy of the supervisor, and py-spy would sample that.
            time.sleep(0.05)
            for name, process in (
                ('runner', runner),
                ('supervisor', bench.silkline.worker),
                ('gateway', bench.silkline.stack.process),
            ):
                output = bench.directory / f'{markdown}-{name}.txt'
                samplers.append(Sampler(name, process, output))

        run = bench.crawl(bench.guide, markdown, on_runner=watch)
        print(our_name(markdown), {part: round(s, 2) for part, s in run.processor_seconds.items()})
        for sampler in samplers:
            print(sampler.stop(), flush=True)


if __name__ == '__main__':
    sys.exit(main())
