"""Which URLs a crawl has handed in already, within a bound.

The database knows every URL of a crawl and ignores one that it has. This filter only spares
sending the same links from page to page; what it forgets is sent once more, and that is all.
"""


class Seen:
    """A set that forgets its oldest members.

    Two generations: when the young one is full it replaces the old one. Kept are hashes of 64
    bits, keyed anew in every process, so that no site can choose URLs that collide; by chance
    two of 200,000 do once in a thousand million crawls.
    """

    def __init__(self, *, max_entries: int = 200_000) -> None:
        self.max_young = max(1, max_entries // 2)
        self.young: set[int] = set()
        self.old: set[int] = set()

    def add(self, url: str) -> bool:
        """Whether this is the first time, as far as is remembered."""
        mark = hash(url)
        if mark in self.young:
            return False
        is_new = mark not in self.old
        if len(self.young) >= self.max_young:
            self.old, self.young = self.young, set()
        self.young.add(mark)
        return is_new

    def __len__(self) -> int:
        """How many are kept; one that is in both generations counts twice."""
        return len(self.young) + len(self.old)
