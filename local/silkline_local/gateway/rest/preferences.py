"""The `Prefer` header: what a client requests beyond the plain response, and what was applied.

PostgREST's `return`, `resolution`, `missing` and `tx` have no effect here: they are about writing
to tables.
"""

import functools
from dataclasses import dataclass
from enum import Enum

from silkline_local.gateway.rest.errors import failure

KNOWN = frozenset(
    {
        'resolution=merge-duplicates',
        'resolution=ignore-duplicates',
        'return=representation',
        'return=minimal',
        'return=headers-only',
        'count=exact',
        'count=planned',
        'count=estimated',
        'tx=commit',
        'tx=rollback',
        'missing=default',
        'missing=null',
        'handling=strict',
        'handling=lenient',
    }
)


class CountMethod(Enum):
    EXACT = 'exact'
    PLANNED = 'planned'
    ESTIMATED = 'estimated'


@dataclass(frozen=True, slots=True)
class Preferences:
    """`timezone` is as given; only the database knows whether it exists."""

    count: CountMethod | None = None
    handling: str | None = None
    timezone: str | None = None
    max_affected: int | None = None
    unknown: tuple[str, ...] = ()

    @property
    def is_strict(self) -> bool:
        return self.handling == 'strict'

    def refuse_unknown(self, *, timezone_is_known: bool) -> None:
        unknown = list(self.unknown)
        if self.timezone is not None and not timezone_is_known:
            unknown.append(f'timezone={self.timezone}')
        if self.is_strict and unknown:
            raise failure(
                400,
                'PGRST122',
                'Invalid preferences given with handling=strict',
                details=f'Invalid preferences: {", ".join(unknown)}',
            )

    def applied(self, *, timezone: str | None, may_affect: bool) -> str:
        """The value of `Preference-Applied`; empty if nothing was applied."""
        parts: list[str] = []
        if self.count is not None:
            parts.append(f'count={self.count.value}')
        if self.handling is not None:
            parts.append(f'handling={self.handling}')
        if timezone is not None:
            parts.append(f'timezone={timezone}')
        if may_affect and self.is_strict and self.max_affected is not None:
            parts.append(f'max-affected={self.max_affected}')
        return ', '.join(parts)


NONE = Preferences()


@functools.lru_cache(maxsize=256)
def parse_preferences(header: str) -> Preferences:
    """Parse a header; several are joined by commas. Of a repeated preference, the first counts."""
    found: dict[str, str] = {}
    unknown: list[str] = []
    for part in header.split(','):
        preference = part.strip()
        name, _, value = preference.partition('=')
        if preference in KNOWN or name == 'timezone':
            found.setdefault(name, value)
        elif name == 'max-affected':
            if value.isdecimal() and len(value) < 19:
                found.setdefault(name, value)
        else:
            unknown.append(preference)
    count = found.get('count')
    max_affected = found.get('max-affected')
    return Preferences(
        count=None if count is None else CountMethod(count),
        handling=found.get('handling'),
        timezone=found.get('timezone'),
        max_affected=None if max_affected is None else int(max_affected),
        unknown=tuple(unknown),
    )
