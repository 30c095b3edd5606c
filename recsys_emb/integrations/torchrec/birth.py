"""The first rows of spread tables: those that one process would draw, of which each keeps its own."""

from __future__ import annotations

import torch

from recsys_emb.integrations.torchrec.tables import ShardedTables
from recsys_emb.lookup.base import seeded_generator

# As a multiple of 16 numbers, blocks are what torch would draw at once; and small beside any table worth spreading.
_ROWS = 2**16


@torch.no_grad()
def begin(tables: ShardedTables, *, init_std: float, seed: int) -> None:
    """Draw rows as at the birth of a `MatrixFactorization`; no process ever holds a whole table."""
    for shard in tables.shards():
        shard.values.zero_()
        if not init_std:
            continue
        table, V = shard.table, shard.table.drawn
        generator = seeded_generator(seed, table.owner)
        starts = list(range(0, max(V - _ROWS, 1), _ROWS))
        for first, last in zip(starts, [*starts[1:], V], strict=True):
            drawn = torch.empty(last - first, tables.width).normal_(0.0, init_std, generator=generator)
            drawn[: max(table.reserved - first, 0)] = 0.0
            rows = table.spread.rows(torch.arange(first, last))
            mine = (rows >= shard.rows.start) & (rows < shard.rows.stop)
            columns = slice(shard.columns.start, min(shard.columns.stop, tables.width))
            found = drawn[mine][:, columns].to(shard.values)
            shard.values[(rows[mine] - shard.rows.start).to(found.device), : found.shape[1]] = found
