import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from recsys_emb.encoding.batch import Jagged
from recsys_emb.lookup.pooling import filled_lists, list_mask, pool, pooled_weights
from recsys_emb.vocabulary.reserved import MISSING_INDEX, PADDING_INDEX

POOLINGS = ["mean", "sum", "sqrtn", "max"]
entries = st.tuples(st.integers(0, 6), st.sampled_from([0.0, 0.5, 1.0, 3.0]))
some_lists = st.lists(st.lists(entries, max_size=4), max_size=5)


def jagged(lists: list[list[tuple[int, float]]], *, weighted: bool) -> Jagged:
    made = Jagged.from_lists([[index for index, _ in one] for one in lists])
    weights = torch.tensor([weight for one in lists for _, weight in one], dtype=torch.float32)
    return Jagged(made.values, made.offsets, weights if weighted else None)


def entries_that_count(one: list[tuple[int, float]], *, weighted: bool) -> list[tuple[int, float]]:
    pairs = [(index, weight if weighted else 1.0) for index, weight in one]
    return [(i, w) for i, w in pairs if i != PADDING_INDEX and w > 0] or [(MISSING_INDEX, 1.0)]


def reference(one: list[tuple[int, float]], table: torch.Tensor, pooling: str, *, weighted: bool) -> torch.Tensor:
    kept = entries_that_count(one, weighted=weighted)
    vectors, weights = table[[i for i, _ in kept]], torch.tensor([w for _, w in kept], dtype=table.dtype)
    if pooling == "max":
        return vectors.amax(0)
    norm = {"mean": weights.sum(), "sqrtn": weights.square().sum().sqrt(), "sum": 1.0}[pooling]
    return (weights / norm) @ vectors


@settings(max_examples=60, deadline=None)
@given(lists=some_lists, weighted=st.booleans(), pooling=st.sampled_from(POOLINGS), seed=st.integers(0, 9))
def test_pooling_equals_a_loop_over_lists_forward_and_backward(lists, weighted, pooling, seed):
    made = jagged(lists, weighted=weighted)
    table = torch.randn(7, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    wanted = torch.randn(len(lists), 3, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    results = []
    for prepare in (pooled_weights, filled_lists):
        leaf = table.clone().requires_grad_()
        ready = prepare(made, pooling)
        # Padding reads zero from every lookup.
        vectors = leaf[ready.values] * (ready.values != PADDING_INDEX).unsqueeze(1)
        pooled = pool(vectors, ready, pooling)
        (pooled * wanted).sum().backward()
        results.append((pooled.detach(), leaf.grad))
    leaf = table.clone().requires_grad_()
    rows = [reference(one, leaf, pooling, weighted=weighted) for one in lists]
    expected = torch.stack(rows) if rows else leaf.new_zeros(0, 3) + leaf.sum() * 0
    (expected * wanted).sum().backward()
    for pooled, grad in results:
        assert pooled.shape == (len(lists), 3)
        assert_close(pooled, expected.detach(), atol=1e-6, rtol=1e-6)
        assert_close(grad, leaf.grad, atol=1e-6, rtol=1e-6)


@settings(max_examples=40, deadline=None)
@given(lists=some_lists, weighted=st.booleans())
def test_pooled_weights_hold_what_counts_and_leave_no_list_empty(lists, weighted):
    pooled = pooled_weights(jagged(lists, weighted=weighted), "sum")
    kept = [entries_that_count(one, weighted=weighted) for one in lists]
    assert pooled.to_lists() == [[index for index, _ in one] for one in kept]
    assert pooled.weights.tolist() == [weight for one in kept for _, weight in one]


@settings(max_examples=40, deadline=None)
@given(lists=some_lists.filter(bool), weighted=st.booleans(), pooling=st.sampled_from(POOLINGS), data=st.data())
def test_a_list_pools_to_the_same_bits_beside_any_neighbours_and_any_padding(lists, weighted, pooling, data):
    row = data.draw(st.integers(0, len(lists) - 1))
    table = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    table[PADDING_INDEX] = 0.0

    def pooled(some: list[list[tuple[int, float]]]) -> torch.Tensor:
        ready = filled_lists(jagged(some, weighted=weighted), pooling)
        return pool(table[ready.values], ready, pooling)

    padded = lists[row] + [(PADDING_INDEX, 1.0)] * data.draw(st.integers(0, 9))
    assert torch.equal(pooled(lists)[row], pooled([padded])[0])


def test_weights_follow_the_stated_norms():
    lists = jagged([[(3, 3.0), (4, 4.0)]], weighted=True)
    assert pooled_weights(lists, "sum").weights.tolist() == [3.0, 4.0]
    assert pooled_weights(lists, "mean").weights.tolist() == pytest.approx([3 / 7, 4 / 7])
    assert pooled_weights(lists, "sqrtn").weights.tolist() == pytest.approx([0.6, 0.8])
    unweighted = pooled_weights(Jagged.from_lists([[3, 4, 5]]), "sqrtn")
    assert unweighted.weights.tolist() == pytest.approx([1 / math.sqrt(3)] * 3)


def test_none_keeps_vectors_apart_padded_at_the_end():
    lists = pooled_weights(Jagged.from_lists([[5, 0, 6], [], [7]]), "none")
    vectors = pool(lists.values.float().unsqueeze(1), lists, "none")
    assert vectors[..., 0].tolist() == [[5.0, 6.0], [1.0, 0.0], [7.0, 0.0]]
    assert list_mask(lists).tolist() == [[True, True], [True, False], [True, False]]


@pytest.mark.parametrize("pooling", [*POOLINGS, "none"])
def test_no_lists_at_all_pool_to_no_rows(pooling):
    nothing = pooled_weights(Jagged.from_lists([]), pooling)
    assert pool(torch.empty(0, 4), nothing, pooling).shape[0] == 0
    assert list_mask(nothing).shape == (0, 0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("pooling", POOLINGS)
def test_cuda_pools_as_the_cpu_does_and_the_same_every_time(pooling):
    lists = Jagged.from_lists([[5, 6, 0], [], [7] * 300])
    table = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))
    table[0] = 0.0
    ready = filled_lists(lists, pooling)
    expected = pool(table[ready.values], ready, pooling)
    on_device = filled_lists(lists.to("cuda"), pooling)
    first = pool(table.cuda()[on_device.values], on_device, pooling)
    assert_close(first.cpu(), expected)
    assert torch.equal(pool(table.cuda()[on_device.values], on_device, pooling), first)
