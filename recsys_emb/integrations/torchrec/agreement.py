"""Whether all processes mean the same, asked before any of them sends a row."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import NamedTuple, TypeVar, cast

from torch import distributed

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import LISTED, FitError

T = TypeVar("T")
_SHOWN = 12  # characters of a fingerprint


class Claim(NamedTuple):
    """What a process goes by, in short, and what to do where others go by something else."""

    said: object
    remedy: str


class Ranks:
    """The processes of a group, as they talk to each other on the CPU, whatever carries their tensors.

    Parameters
    ----------
    group
        The processes that learn together; all of them where None.
    timeout
        How long one waits for the others, before it raises.

    Raises
    ------
    FitError
        When there is no process group, or not all of its processes come in time.
    """

    def __init__(self, group: distributed.ProcessGroup | None, *, timeout: timedelta) -> None:
        if not (distributed.is_available() and distributed.is_initialized()):
            raise FitError(
                "ShardedFactorization: expected a process group, got none. Start the script with torchrun, and call "
                "torch.distributed.init_process_group first; one process is a group too."
            )
        self.group = cast("distributed.ProcessGroup", distributed.group.WORLD if group is None else group)
        members = distributed.get_process_group_ranks(self.group)
        with self._answered(timeout):
            self._talk = distributed.new_group(members, timeout=timeout, backend="gloo", use_local_synchronization=True)
        self._first = members[0]
        self.rank, self.size = distributed.get_rank(self.group), distributed.get_world_size(self.group)

    @property
    def talk(self) -> distributed.ProcessGroup:
        """The group that talks on the CPU."""
        return cast("distributed.ProcessGroup", self._talk)

    def everyone(self, said: T) -> list[T]:
        """Hear what each process says, in the order of their ranks."""
        heard: list[T] = [said] * self.size
        distributed.all_gather_object(heard, said, group=self._talk)
        return heard

    def from_first(self, said: T) -> T:
        """Hear what the first process says."""
        heard = [said]
        distributed.broadcast_object_list(heard, src=self._first, group=self._talk)
        return heard[0]

    @contextlib.contextmanager
    def _answered(self, timeout: timedelta) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise FitError(
                f"ShardedFactorization: expected every rank to come within {timeout.total_seconds():g} seconds, got "
                f"no answer: {error}. See what the other ranks wrote before they stopped, or give a longer timeout."
            ) from error

    def agree(self, where: str, claims: Mapping[str, Claim]) -> None:
        """Refuse, on every process with the same words, to go on where they mean different things.

        Raises
        ------
        FitError
            Naming the first difference, and who says what.
        """
        heard = self.everyone([claim.said for claim in claims.values()])
        for place, (name, claim) in enumerate(claims.items()):
            said = [one[place] for one in heard]
            if any(one != said[0] for one in said):
                shown = ", ".join(f"{one} on rank {rank}" for rank, one in enumerate(said[:LISTED]))
                rest = f" and {len(said) - LISTED} more" if len(said) > LISTED else ""
                raise FitError(f"{where}: expected the same {name} on every rank, got {shown}{rest}. {claim.remedy}")


def agree_on_model(ranks: Ranks, encoder: FeatureEncoder, settings: Mapping[str, object]) -> None:
    """Refuse to make one model of processes that would encode differently, or learn differently."""
    schema = hashlib.sha256(encoder.to_state().schema.to_json().encode()).hexdigest()
    claims = {
        "schema": Claim(schema[:_SHOWN], "Declare it once, and import it."),
        "encoder": Claim(encoder.fingerprint[:_SHOWN], "Fit it once, save it, and load it on every rank."),
    }
    claims |= {name: Claim(repr(value), "Give every rank the same.") for name, value in settings.items()}
    ranks.agree("ShardedFactorization", claims)
