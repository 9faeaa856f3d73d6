"""Marks of emphasis, written only where CommonMark reads them as such.

`inline.py` writes a mark as one placeholder character that no page contains. Once the line is
complete, each one becomes its asterisks or tildes, or is dropped where those would be read as text:
`x**(y)**z` is not bold. Only marks are dropped, never words.
"""

import re
import unicodedata

OPENED = {'**': '\x02', '*': '\x03', '~~': '\x04'}
CLOSED = {'**': '\x05', '*': '\x06', '~~': '\x07'}
_WRITTEN = {'\x02': '**', '\x03': '*', '\x04': '~~', '\x05': '**', '\x06': '*', '\x07': '~~'}
_OPENER_OF = {'\x05': '\x02', '\x06': '\x03', '\x07': '\x04'}
_MARK = re.compile('([\x02-\x07])')
_SAME_AGAIN = re.compile('\x05\x02|\x06\x03|\x07\x04')
_AFTER = ' .,;:)!?'
_ENDS = frozenset('.,;:)!?')
MAX_PASSES = 4


def settle(line: str) -> str:
    """Write the marks of a line whose white space is collapsed."""
    if not _has_marks(line):
        return line
    parts = _MARK.split(line)
    if _is_plain(parts):
        parts[1::2] = [_WRITTEN[mark] for mark in parts[1::2]]
        return ''.join(parts)
    parts = _MARK.split(_SAME_AGAIN.sub('', line))
    pairs = _pairs(parts)
    for _ in range(MAX_PASSES):
        wrong = _misread(parts, pairs)
        if not wrong:
            break
        for at in wrong:
            if at in pairs:
                del pairs[pairs.pop(at)]
    else:
        pairs = {}
    for at in range(1, len(parts), 2):
        parts[at] = _WRITTEN[parts[at]] if at in pairs else ''
    return ''.join(parts)


def _has_marks(line: str) -> bool:
    # Most lines have none, and a pattern would take far longer to find that out.
    return (
        '\x02' in line
        or '\x03' in line
        or '\x04' in line
        or '\x05' in line
        or '\x06' in line
        or '\x07' in line
    )


def _is_plain(parts: list[str]) -> bool:
    """Whether all marks are around whole words, as most are: then all are read as marks."""
    last = len(parts) - 2
    for at in range(1, len(parts), 2):
        before, after = parts[at - 1], parts[at + 1]
        if parts[at] in _OPENER_OF:
            if not (after[:1] in _AFTER if after else at == last):
                return False
            if not before[-1:].isalnum() and (before[-1:] not in _ENDS or after[:1] > ' '):
                return False
        elif not after[:1].isalnum() or not (before[-1] in ' (' if before else at == 1):
            return False
    return True


def _pairs(parts: list[str]) -> dict[int, int]:
    """Map each mark to its other half; a mark without one is left out."""
    pairs: dict[int, int] = {}
    opened: list[int] = []
    for at in range(1, len(parts), 2):
        mark = parts[at]
        if mark not in _OPENER_OF:
            opened.append(at)
        elif opened and parts[opened[-1]] == _OPENER_OF[mark]:
            other = opened.pop()
            pairs[other] = at
            pairs[at] = other
    return pairs


def _misread(parts: list[str], pairs: dict[int, int]) -> list[int]:
    """The marks that CommonMark would not read as such."""
    wrong: list[int] = []
    run: list[int] = []
    depth = 0
    before = ''
    for at in range(len(parts) + 1):
        if at % 2:
            if at in pairs:
                run.append(at)
            continue
        text = parts[at] if at < len(parts) else ''
        if not text and at < len(parts):
            continue
        if run:
            wrong += _misread_run(parts, pairs, run, before, text[:1])
            if depth and pairs[run[0]] > run[0] and before.strip():
                # Inside another mark it could be read as the end of that one.
                wrong += run
            depth += sum(1 if pairs[one] > one else -1 for one in run)
            run = []
        before = text[-1:]
    return wrong


def _misread_run(
    parts: list[str], pairs: dict[int, int], run: list[int], before: str, after: str
) -> list[int]:
    """Check adjacent marks, with the text before and after them."""
    opening = [at for at in run if pairs[at] > at]
    if opening and len(opening) < len(run):
        # Where marks end and begin at one place, those that end are kept.
        return opening
    signs = [before, *(_WRITTEN[parts[at]][0] for at in run), after]
    wrong: list[int] = []
    for at, left, sign, right in zip(run, signs, signs[1:], signs[2:], strict=False):
        # Adjacent asterisks are read as one run, and a tilde is punctuation to them.
        left = before if left == sign else left
        right = after if right == sign else right
        if not (_can_touch(right, left) if opening else _can_touch(left, right)):
            wrong.append(at)
    return wrong


def _can_touch(inside: str, outside: str) -> bool:
    """Whether a mark between two characters can open or close on the inner one (CommonMark 6.2)."""
    if not inside or inside.isspace():
        return False
    return not _is_punctuation(inside) or not outside or outside == ' ' or _is_punctuation(outside)


def _is_punctuation(character: str) -> bool:
    # Placeholders for brackets are control characters (C).
    return unicodedata.category(character)[0] in 'PSC'
