"""What closes a page and has no name to be known by: links to the next page, a date of change."""

import re

MOST_LAST_LINKS = 3
_LAST_WORDS = re.compile(
    r'\W*(?:last (?:updated?|modified|edited)\b.{0,80}|(?:was|is) this (?:\w+ )?helpful\W*'
    r'|did this page help(?: you)?\W*|---'
    r'|(?:suggest an |improve |edit )(?:edit|this page|this article)\W*'
    r'|(?:feedback|share this|related|read more)\W*)',
    re.IGNORECASE,
)
_LINK = re.compile(r'\[[^\[\]]*\]\([^()]*\)\s*')


def drop_ending(blocks: list[str]) -> None:
    links = 0
    for _ in range(min(4, len(blocks) - 3)):
        last = blocks[-1]
        if not _LAST_WORDS.fullmatch(last):
            links += len(_LINK.findall(last))
            if _LINK.sub('', last) or links > MOST_LAST_LINKS:
                break
        del blocks[-1]
