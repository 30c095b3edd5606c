"""Tables of one width that are spread over processes: rows are fetched from where they stand, and learn there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed, nn

from recsys_emb.integrations.torchrec.door import torchrec
from recsys_emb.integrations.torchrec.placement import Placement, generator_of, padded_width
from recsys_emb.integrations.torchrec.rules import first_state, optimizer_of
from recsys_emb.integrations.torchrec.spread import Spread
from recsys_emb.lookup.row_rules import RowRule


@dataclass(frozen=True)
class Table:
    """What is known of one table without any of its rows.

    Parameters
    ----------
    name
        For TorchRec; plain letters and digits.
    owner
        Name of the feature that it was made for.
    weight
        Key of its rows in the state dict of a `MatrixFactorization`.
    spread
        Where its rows stand.
    drawn, reserved
        How many rows are drawn at birth, and how many of the first then become zeros.
    placement
        On which processes.
    process
        The one that holds it, by `TableWise`.
    """

    name: str
    owner: str
    weight: str
    spread: Spread
    drawn: int
    reserved: int
    placement: Placement
    process: int


class Shard(NamedTuple):
    """The part of a table that this process holds."""

    table: Table
    rows: slice  # of the table as it stands, not indices
    columns: slice
    values: Tensor

    @property
    def indices(self) -> Tensor:
        """Indices of its rows, int64 ``(R,)``."""
        return self.table.spread.indices(torch.arange(self.rows.start, self.rows.stop))


class ShardedTables(nn.Module):
    """Tables of one width over the processes of a group.

    Parameters
    ----------
    tables
        All of them.
    width
        Numbers per row, D. FBGEMM's tables are wider where it is no multiple of 4; what fills them up stays zero.
    update
        How rows move.
    group
        The processes.
    device
        Where this process holds its part.
    """

    def __init__(
        self,
        tables: Sequence[Table],
        width: int,
        *,
        update: RowRule,
        group: distributed.ProcessGroup,
        device: torch.device,
    ) -> None:
        super().__init__()
        processes = distributed.get_world_size(group)
        self.tables, self.width, self._device = list(tables), width, device
        self.padded = padded_width(width, [table.placement for table in tables], processes)
        modules = torchrec("modules.embedding_modules")
        config = torchrec("modules.embedding_configs").EmbeddingConfig
        rows = [
            config(
                name=table.name,
                embedding_dim=self.padded,
                num_embeddings=table.spread.num_embeddings,
                feature_names=[table.name],
            )
            for table in tables
        ]
        whole = modules.EmbeddingCollection(tables=rows, device=torch.device("meta"))
        kind, settings = optimizer_of(update, width, self.padded)
        torchrec("optim.apply_optimizer_in_backward").apply_optimizer_in_backward(kind, whole.parameters(), settings)
        sharder = torchrec("distributed.embedding").EmbeddingCollectionSharder()
        plan = torchrec("distributed.sharding_plan").construct_module_sharding_plan(
            whole,
            {table.name: generator_of(table.placement, table.process, processes) for table in tables},
            sharder=sharder,
            local_size=processes,
            world_size=processes,
            device_type=device.type,
        )
        environment = torchrec("distributed.types").ShardingEnv.from_process_group(group)
        self.collection = sharder.shard(whole, plan, environment, device)
        self._begin_state(first_state(update, width, self.padded))

    def fetch(self, wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Fetch rows of all tables, in one exchange; going backward moves them where they stand.

        Parameters
        ----------
        wanted
            By the owner's name, distinct indices, int64 ``(N,)`` with N of at least 1. Every process calls this at the
            same time, with indices of its own.

        Returns
        -------
        dict
            By the key of the weights, ``(N, D)``.
        """
        columns = [wanted[table.owner] for table in self.tables]
        rows = torch.cat([table.spread.rows(column) for table, column in zip(self.tables, columns, strict=True)])
        lengths = torch.tensor([len(column) for column in columns], dtype=torch.int32, device=rows.device)
        names = [table.name for table in self.tables]
        found = self.collection(torchrec("sparse.jagged_tensor").KeyedJaggedTensor(names, rows, lengths=lengths))
        return {table.weight: found[table.name].values()[:, : self.width] for table in self.tables}

    def shards(self) -> Iterator[Shard]:
        """Give the parts that this process holds, for writing in place."""
        for table, tensor in self._whole():
            for local in tensor.local_shards():
                (row, column), (rows, columns) = local.metadata.shard_offsets, local.metadata.shard_sizes
                yield Shard(table, slice(row, row + rows), slice(column, column + columns), local.tensor.detach())

    def gathered(self, *, to: int) -> dict[str, Tensor]:
        """Bring tables together on the process ``to``, in the order of their indices; every process calls this.

        Returns
        -------
        dict
            By the key of the weights, ``(V, D)`` on the CPU; empty on the other processes.
        """
        found = {}
        for table, tensor in self._whole():
            V, mine = table.spread.num_embeddings, distributed.get_rank(tensor._process_group) == to
            whole = torch.zeros(V, self.padded, device=self._device) if mine else None
            tensor.gather(dst=to, out=whole)
            if whole is not None:
                found[table.weight] = as_indexed(whole, table.spread, self.width)
        return found

    def saved(self) -> dict[str, Any]:
        """Give what a checkpoint holds, for reading and for writing in place: rows, and the state of the rule."""
        rows = {row_key(table.name): tensor for table, tensor in self._whole()}
        return rows | {f"{of}.{name}": tensor for of, name, tensor in self._state()}

    def _whole(self) -> Iterator[tuple[Table, Any]]:
        state = self.collection.state_dict()
        for table in self.tables:
            yield table, state[row_key(table.name)]

    def _state(self) -> Iterator[tuple[str, str, Any]]:
        """Give the state of the rule of each table that this process holds a part of."""
        for of, states in self.collection.fused_optimizer.state_dict()["state"].items():
            for name, tensor in states.items():
                yield of, name, tensor

    def _begin_state(self, start: float) -> None:
        for _, _, tensor in self._state():
            for local in tensor.local_shards():
                local.tensor.fill_(start)


def row_key(name: str) -> str:
    """Key of a table's rows, in TorchRec and in checkpoints."""
    return f"embeddings.{name}.weight"


def as_indexed(rows: Tensor, spread: Spread, width: int) -> Tensor:
    """Lay rows that stand ``(V, padded)`` out in the order of their indices, ``(V, D)`` on the CPU."""
    places = spread.rows(torch.arange(spread.num_embeddings, device=rows.device))
    return rows[places, :width].cpu()
