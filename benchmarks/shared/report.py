"""What was measured: one printed line per claim, and the results page.

Owns the wording and the Markdown. It compares a figure with its target, and does not know how the
figure was measured.
"""

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Claim:
    what: str
    target: str
    figure: str
    holds: bool


@dataclass(slots=True)
class Report:
    """Collects claims and figures, and prints each one at once."""

    claims: list[Claim] = field(default_factory=list[Claim])
    figures: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    # Claims that this run cannot judge.
    skipped: list[str] = field(default_factory=list[str])

    def at_most(self, what: str, figure: float, target: float, unit: str = '') -> None:
        self._judge(what, f'<= {number(target, unit)}', number(figure, unit), figure <= target)

    def at_least(self, what: str, figure: float, target: float, unit: str = '') -> None:
        self._judge(what, f'>= {number(target, unit)}', number(figure, unit), figure >= target)

    def figure(self, name: str, values: float | Sequence[float], unit: str = '') -> None:
        """Add a figure behind a claim: one value, or the median and range of several."""
        if isinstance(values, Sequence):
            low, middle, high = min(values), statistics.median(values), max(values)
            text = f'{number(middle, unit)} [{number(low)} to {number(high)}, n={len(values)}]'
        else:
            text = number(values, unit)
        self.figures.append((name, text))
        print(f'       {name}: {text}', flush=True)

    def skip(self, claims: Sequence[str], why: str) -> None:
        """Say which claims are not measured, and why."""
        self.skipped += claims
        for what in claims:
            print(f'-      {what}: not measured, {why}', flush=True)

    def _judge(self, what: str, target: str, figure: str, holds: bool) -> None:
        self.claims.append(Claim(what, target, figure, holds))
        word = 'ok' if holds else 'short'
        print(f'{word:5}  {what}: {figure} (target {target})', flush=True)

    @property
    def holds(self) -> bool:
        return all(claim.holds for claim in self.claims)

    def write(
        self,
        path: Path,
        *,
        title: str,
        how: str,
        versions: Mapping[str, str],
        tables: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Write the page: how it was measured, the claims, further tables by title, the figures."""
        path.parent.mkdir(parents=True, exist_ok=True)
        now = datetime.now(UTC)
        claims = [
            (claim.what, claim.target, claim.figure, 'ok' if claim.holds else '**short**')
            for claim in self.claims
        ]
        parts = [
            f'# {title}',
            f'{now:%Y-%m-%d %H:%M} UTC. {machine()}. '
            + ', '.join(f'{name} {version}' for name, version in versions.items())
            + f'. {how}',
            '## Claims',
            table(('claim', 'target', 'measured', ''), claims),
        ]
        for heading, body in tables:
            parts += [f'## {heading}', body]
        parts += [
            '## Figures behind the claims',
            table(('what', 'median [lowest to highest]'), self.figures),
        ]
        path.write_text('\n\n'.join(parts) + '\n')


def number(value: float, unit: str = '') -> str:
    """Three significant digits, or more if they are left of the point."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    text = f'{value:,.{digits}f}'
    if '.' in text:
        text = text.rstrip('0').rstrip('.')
    return f'{text} {unit}'.rstrip()


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ['---'] * len(head), *rows]
    return '\n'.join('| ' + ' | '.join(line) + ' |' for line in lines)


def machine() -> str:
    models = [
        line.partition(':')[2].strip()
        for line in Path('/proc/cpuinfo').read_text().splitlines()
        if line.startswith('model name')
    ]
    memory = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30
    model = models[0] if models else platform.machine()
    return f'{model}, {os.cpu_count()} cores, {memory:.0f} GB of memory, {platform.platform()}'
