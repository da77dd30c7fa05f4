"""Renders what is sent upstream: messages, labels, the block of reference material."""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.context.assembly import render, shown_block
    from gateway.context.assembly.render import BLOCK_NOTE
    from gateway.context.assembly.shown_block import ARTIFACT_ID, BLOCK_TAG, ELISION, ITEM_TAG, without_block_items
else:
    __getattr__ = lazy_face(__name__)
