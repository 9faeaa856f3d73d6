"""The links of an llms.txt file, or of any other Markdown.

Inline links, reference definitions and <https://…> count; images and code do not. It takes one pass
over the text, whatever it contains. Joining the targets to the file's URL is left to the caller.
"""

import re

MAX_LINKS = 50_000

_FENCE = re.compile(r' {0,3}(`{3,}|~{3,})')
_DEFINITION = re.compile(r' {0,3}\[[^\[\]]+\]:[ \t]*(?:<([^<>]*)>|(\S+))')
_MARK = re.compile(
    r"""\\.                              # escaped: stands for itself
    | (`+)                               # code
    | <(https?://[^\s<>]*)>              # a bare link
    | (!?\[)                             # the text of a link begins
    | \]\(\s*(?:<([^<>]*)>|([^\s()]*(?:\([^\s()]*\)[^\s()]*){0,20}))   # and ends with its target
    | \]                                 # or without one
    """,
    re.VERBOSE,
)


def links_of(text: str) -> list[str]:
    """The targets of the links as written, in order, without duplicates."""
    found: dict[str, None] = {}
    fence = ''
    for line in text.removeprefix('\ufeff').splitlines():
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
                fence = ''
            continue
        if mark:
            fence = mark[1]
            continue
        definition = _DEFINITION.match(line)
        targets = [definition[1] or definition[2]] if definition else _inline(line)
        found.update(dict.fromkeys(target for target in targets if target))
        if len(found) >= MAX_LINKS:
            break
    return list(found)[:MAX_LINKS]


def _inline(line: str) -> list[str]:
    targets: list[str] = []
    # For each open text, whether it belongs to an image.
    images: list[bool] = []
    at = 0
    while mark := _MARK.search(line, at):
        at = mark.end()
        if mark[1]:
            end = line.find(mark[1], at)
            at = end + len(mark[1]) if end >= 0 else at
        elif mark[2]:
            targets.append(mark[2])
        elif mark[3]:
            images.append(mark[3] == '![')
        elif mark[0].startswith(']') and images:
            is_image = images.pop()
            if not is_image:
                targets.append(mark[4] or mark[5] or '')
    return targets
