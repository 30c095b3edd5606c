"""What tables cost in memory, before they exist."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from recsys_emb.lookup.base import IndexLookup
from recsys_emb.lookup.tables import FeatureTable


def memory_plan(tables: Iterable[tuple[str, FeatureTable]], *, batch_size: int) -> pd.DataFrame:
    """Account for tables side by side; see `FeatureEmbedding.plan` for the columns.

    Parameters
    ----------
    tables
        Feature name and table, which may be on the meta device. A table that came before costs nothing again.
    batch_size
        Rows that the dense one-hot matrix of a batch is counted for.
    """
    seen: set[int] = set()
    rows = []
    for name, table in tables:
        rows.append({"feature": name, **_cost(table, batch_size, counted=id(table) not in seen)})
        seen.add(id(table))
    return pd.DataFrame(rows).set_index("feature")


def _cost(table: FeatureTable, batch_size: int, *, counted: bool) -> dict[str, object]:
    parameters = list(table.parameters()) if counted else []
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    weight_bytes = sum(parameter.numel() * parameter.element_size() for parameter in parameters)
    trained_bytes = sum(parameter.numel() * parameter.element_size() for parameter in trained)
    item = parameters[0].element_size() if parameters else 0
    return {
        "kind": type(table).__name__,
        "num_embeddings": table.num_embeddings,
        "embedding_dim": table.embedding_dim,
        "parameters": sum(parameter.numel() for parameter in parameters),
        "weight_bytes": weight_bytes,
        "gradient_bytes": trained_bytes,
        "row_wise_adagrad_bytes": sum(len(parameter) * parameter.element_size() for parameter in trained),
        "adam_bytes": 2 * trained_bytes,
        "one_hot_bytes": batch_size * table.num_embeddings * item if isinstance(table, IndexLookup) else 0,
    }
