"""From a batch's candidates and a selection to the tokens that a translator may see."""

from __future__ import annotations

import torch
from torch import Tensor

from dynctx.batches import Batch, Context
from dynctx.errors import DynctxError

NOT_SELECTED = -2  # the sentence number of a token that nobody may look at


def selected_tokens(context: Context, selection: Tensor) -> Tensor:
    """[R, N] which context tokens belong to a selected candidate. selection [n, scope]."""
    scope = selection.shape[1]
    chosen = selection[context.sentence.clamp(min=0), context.slot.clamp(0, scope - 1)]
    return chosen & (context.sentence >= 0) & (context.slot < scope)


def owners(context: Context, visible: Tensor) -> Tensor:
    """[R, N] sentence numbers of the visible tokens, NOT_SELECTED for the others: what masks are made of."""
    return torch.where(visible, context.sentence, NOT_SELECTED)


def positions(context: Context, visible: Tensor) -> Tensor:
    """[R, N] each visible token's place among the visible tokens of its sentence, as if the rest were cut out."""
    count = visible.long().cumsum(dim=1)
    first = torch.arange(visible.shape[1], device=visible.device) - context.position  # where its sentence begins
    before = count.gather(1, first) - visible.long().gather(1, first)
    return (count - before - 1).clamp(min=0)


def candidates_of(batch: Batch, selection: Tensor | None) -> tuple[Context, Tensor]:
    """The context and the selection of a batch; a missing selection is the empty one."""
    if batch.context is None:
        raise DynctxError("this translator reads context, but the batch was gathered without (scope 0)")
    if selection is None:
        selection = torch.zeros_like(batch.present)
    return batch.context, selection & batch.present
