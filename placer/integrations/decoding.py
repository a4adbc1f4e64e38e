"""What ``generate`` of Hugging Face's transformers runs for a prompt, and for one more token, as two modules.

Both run the library's own code around the model: preparing inputs, processing logits, choosing the token, asking
whether to stop. Tokens have no values in a trace, so none of them ends a text.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import StoppingCriteria, StoppingCriteriaList
from transformers.generation import MaxLengthCriteria

from placer.integrations.key_value_cache import Place, fill


class Prefill(nn.Module):
    """``generate`` of one token: its preparations, the forward pass of the prompt, and the choice of the token.

    ``options`` are those of ``generate``. ``keep`` is called with what ``generate`` returns.
    """

    def __init__(self, model: Any, options: dict[str, Any], keep: Callable[[Any], None] | None = None) -> None:
        super().__init__()
        self.model: Any = model
        self.options, self.keep = options, keep

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The texts with one more token."""
        settings = {"max_new_tokens": 1, "return_dict_in_generate": True, **self.options}
        with _mixed_in(self.model, _Endless):
            made = self.model.generate(input_ids, attention_mask=attention_mask, **settings)
        if self.keep is not None:
            self.keep(made)
        result: Tensor = made.sequences
        return result


class DecodeStep(nn.Module):
    """One turn of the loop in ``generate``: each text gets a token, with a cache of all tokens before it.

    ``options`` and ``arguments`` are those of ``generate``, and of its loop (see ``loop_arguments``). The cache among
    them is empty: its tensors are inputs of the step, and belong in these ``places``.
    """

    def __init__(
        self, model: Any, options: dict[str, Any], arguments: dict[str, Any], places: Sequence[Place]
    ) -> None:
        super().__init__()
        self.model: Any = model
        self.options = options
        self.arguments, self._places = arguments, places

    def forward(self, input_ids: Tensor, cached: tuple[Tensor, ...], given: dict[str, Any]) -> Tensor:
        """The texts with one more token. ``cached``: the cache's tensors. ``given``: other tensors of the arguments."""
        fill(self._places, cached)
        result: Tensor = type(self.model)._sample(self.model, input_ids, **self.arguments, **given)
        return result


def loop_arguments(model: Any, input_ids: Tensor, options: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
    """The tokens and other arguments with which ``generate`` enters its loop for one more token. Nothing is computed.

    ``options`` hold the cache of all tokens but the last.
    """
    found: dict[str, Any] = {}

    class Entered(_Endless):
        def _sample(self, input_ids: Tensor, **arguments: Any) -> Tensor:
            found.update(arguments, input_ids=input_ids)
            return input_ids

    with _mixed_in(model, Entered):
        model.generate(input_ids, max_new_tokens=1, **options)
    tokens: Tensor = found.pop("input_ids")
    # transformers 5 compares this number with the tokens' to see that the cache holds all but the last of them.
    found["generation_config"]._mask_length = tokens.shape[1]
    return tokens, found


class _Endless:
    """Mixed into a model's class: stopping criteria that look at tokens do their work, and never stop."""

    def _get_stopping_criteria(self, *args: Any, **kwargs: Any) -> StoppingCriteriaList:
        criteria = super()._get_stopping_criteria(*args, **kwargs)  # type: ignore[misc]
        return StoppingCriteriaList(c if isinstance(c, MaxLengthCriteria) else _NeverMet(c) for c in criteria)


class _NeverMet(StoppingCriteria):  # type: ignore[misc]
    def __init__(self, criterion: Any) -> None:
        self.criterion = criterion
        if hasattr(criterion, "eos_token_id"):  # then the loop pads the texts that are done
            self.eos_token_id = criterion.eos_token_id

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        self.criterion(input_ids, scores, **kwargs)
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


@contextlib.contextmanager
def _mixed_in(model: Any, mixin: type) -> Iterator[None]:
    """Replace methods of one model, by a class of the same name."""
    before: Any = type(model)
    model.__class__ = _with_mixin(before, mixin)
    try:
        yield
    finally:
        model.__class__ = before


@functools.lru_cache(maxsize=16)
def _with_mixin(kind: type, mixin: type) -> type:
    return type(kind.__name__, (mixin, kind), {"__module__": kind.__module__})
