"""The user-item graph on tables of users and items: LightGCN (He et al., 2020).

Needs:  nothing.

The neighbours of a node are a list of rows, so a layer of the graph is a pooled lookup: each node becomes the sum of
its neighbours, weighted 1/√(degree · degree). A node's vector is the mean over all layers; the first is its own row.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recsys_emb import FeatureEmbedding, FeatureEncoder, Jagged


class GraphNodes(nn.Module):
    """The tables of a schema's user and item, whose rows are the nodes of a graph.

    Parameters
    ----------
    encoder
        Fitted, of a schema with a user and an item alone.
    users, items
        Indices of the edges, int64 ``(N,)`` each.
    layers
        How far vectors spread; none leaves the rows as they are, which is plain factorization.
    """

    def __init__(self, encoder: FeatureEncoder, users: Tensor, items: Tensor, *, layers: int) -> None:
        super().__init__()
        self.embed, self.layers = FeatureEmbedding(encoder, init_std=0.1), layers
        self.sizes = [table.num_embeddings for table in self.embed.lookups]
        self.graph = neighbours(users, items + self.sizes[0], sum(self.sizes))

    def forward(self) -> tuple[Tensor, Tensor]:
        """Vectors of all users ``(U, D)`` and of all items ``(I, D)``."""
        nodes = total = torch.cat([table.table() for table in self.embed.lookups])
        for _ in range(self.layers):
            nodes = _Layer.apply(nodes, self.graph)
            total = total + nodes
        return (total / (self.layers + 1)).split(self.sizes)


def neighbours(ones: Tensor, others: Tensor, num_nodes: int) -> Jagged:
    """List the neighbours of every node and their weights; an edge counts once, and both ways."""
    edges = torch.unique(torch.cat([ones * num_nodes + others, others * num_nodes + ones]))
    nodes, ends = edges // num_nodes, edges % num_nodes
    degrees = torch.bincount(nodes, minlength=num_nodes)
    weights = (degrees[nodes] * degrees[ends]).float().rsqrt()
    return Jagged(ends, torch.cat([degrees.new_zeros(1), degrees.cumsum(0)]), weights)


class _Layer(torch.autograd.Function):
    """Sum the neighbours of every node. The graph is symmetric, so gradients spread by the same sum."""

    @staticmethod
    def forward(context: Any, nodes: Tensor, graph: Jagged) -> Tensor:
        context.graph = graph
        lists = {"per_sample_weights": graph.weights, "include_last_offset": True, "mode": "sum"}
        return F.embedding_bag(graph.values, nodes, graph.offsets, **lists)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _Layer.apply(gradient.contiguous(), context.graph), None
