"""Pages of PDFs that matter to a question and hold pictures go up as those pages alone (guarantee §14.13)."""

from functools import partial

from gateway.context.build import ContextHooks
from gateway.pipeline.features.pdf_pages.choosing import PageCutter, shown_pages, with_kept_pages

__all__ = ["PageCutter", "build"]


def build(cutter: PageCutter) -> ContextHooks:
    return ContextHooks(
        on_forwarded=partial(with_kept_pages, cutter=cutter), on_proposal=partial(shown_pages, cutter=cutter)
    )
