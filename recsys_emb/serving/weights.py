"""Whether a model's weights may be served; they are read again only when they have changed."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from torch import Tensor, nn

from recsys_emb.errors import FitError, counted

Made = TypeVar("Made")


class Stamp:
    """Weights at one moment: which tensors they are, where they lie, and how often torch has changed them.

    It holds on to the tensors and to their memory, so that nothing else can come to stand there unnoticed. What torch
    cannot see, it cannot either: after writing through ``.data`` or numpy, call
    `torch.autograd.graph.increment_version`.

    Examples
    --------
    >>> import torch
    >>> model = nn.Linear(2, 1)
    >>> stamp = Stamp(model)
    >>> stamp.holds_for(model)
    True
    >>> _ = nn.init.ones_(model.weight)
    >>> stamp.holds_for(model)
    False
    """

    def __init__(self, model: nn.Module) -> None:
        self._taken = [(one, one.detach(), one.data_ptr(), one._version) for one in _tensors(model)]

    def holds_for(self, model: nn.Module) -> bool:
        """Tell whether the weights are as they were."""
        now = list(_tensors(model))
        return len(now) == len(self._taken) and all(
            one is then and one._version == version and one.data_ptr() == place
            for one, (then, _, place, version) in zip(now, self._taken, strict=True)
        )


_vetted: weakref.WeakKeyDictionary[nn.Module, Stamp] = weakref.WeakKeyDictionary()
_vetting = threading.Lock()


def check_finite(model: nn.Module) -> Stamp:
    """Refuse a model that training has ruined: its best items would look plausible.

    Returns
    -------
    Stamp
        The same object for as long as the weights are the same.

    Raises
    ------
    FitError
        Naming the first table with weights that are not finite, and how many.
    """
    known = _known(model)
    if known is not None:
        return known
    with _vetting:
        return _known(model) or _vet(model)


def check_numbers(model: nn.Module) -> None:
    """As `check_finite`, from the numbers themselves, whoever wrote them: what is saved replaces a good model."""
    with _vetting:
        _vetted.pop(model, None)
        _vet(model)


def _known(model: nn.Module) -> Stamp | None:
    stamp = _vetted.get(model)
    return stamp if stamp is not None and stamp.holds_for(model) else None


def _vet(model: nn.Module) -> Stamp:
    # Before the weights are read: what changes meanwhile is a later moment.
    stamp = Stamp(model)
    for name, tensor in model.state_dict().items():
        # A sum is quick to take and finite only if all of its terms are; it may overflow, so it does not decide.
        if tensor.sum().isfinite():
            continue
        finite = tensor.isfinite()
        if not finite.all():
            bad = int(finite.logical_not().sum())
            raise FitError(
                f"Recommender: expected finite weights, got {counted(bad, 'number')} not finite in {name!r}. "
                "Fit again with a lower learning rate."
            )
    _vetted[model] = stamp
    return stamp


class Kept(Generic[Made]):
    """The last thing made of a model's weights, for as long as these stay as they are.

    Of any number of threads one makes it and the others wait for it. Copies and pickles keep nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: tuple[Stamp, Made] | None = None

    def of(self, model: nn.Module, make: Callable[[], Made]) -> Made:
        """Give it, made anew if the weights have changed.

        Raises
        ------
        FitError
            When they are not finite.
        """
        stamp = check_finite(model)
        kept = self._kept
        if kept is None or kept[0] is not stamp:
            with self._lock:
                kept = self._kept
                if kept is None or kept[0] is not stamp:
                    kept = self._kept = stamp, make()
        return kept[1]

    def forget(self) -> None:
        """Have it made anew."""
        self._kept = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle nothing: a lock cannot be, and what is kept can be made again."""
        return type(self), ()


def trust(model: nn.Module) -> None:
    """Vouch for weights that were found finite before they were saved."""
    _vetted[model] = Stamp(model)


def modules_of(model: nn.Module) -> list[nn.Module]:
    """List a model and all modules in it, one that is there twice twice; in a fraction of the time of ``modules()``."""
    found = [model]
    for one in found:
        found += [module for module in one._modules.values() if module is not None]
    return found


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    """Parameters and buffers, in an order of their own; several times faster than ``state_dict``."""
    for one in modules_of(model):
        yield from (tensor for tensor in one._parameters.values() if tensor is not None)
        yield from (tensor for tensor in one._buffers.values() if tensor is not None)
