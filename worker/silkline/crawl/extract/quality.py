"""How good the Markdown of a page is: what was kept of the page, and the warnings that follow.

`Quality` is stored with the page, so the type belongs to `silkline.protocol`.
"""

from silkline.protocol import PageWarning, Quality

__all__ = ['PageWarning', 'Quality', 'quality_of_text']


def quality_of_text(characters: int, *, kept: int) -> Quality:
    """For text that is stored as it is, up to its first `kept` characters."""
    is_cut = kept < characters
    return Quality(
        kept=round(kept / characters, 3) if is_cut else 1.0,
        headings=0,
        headings_kept=0,
        code_blocks=0,
        code_blocks_kept=0,
        is_cut=is_cut,
        warnings=('cut',) if is_cut else (),
    )
