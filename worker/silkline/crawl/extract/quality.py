"""How good text is that was stored without a comparison with its page: only a cut is known.

The quality of Markdown that the built-in extractor wrote is found by `comparison.py`.
"""

from silkline.protocol import Quality


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
