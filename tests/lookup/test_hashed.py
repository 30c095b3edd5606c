import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from recsys_emb.errors import IndexRangeError
from recsys_emb.lookup.hashed import HashedEmbedding

BITS = 2**64 - 1


def splitmix64(state: int) -> int:
    """Reference in exact integers (Steele et al., 2014)."""
    state &= BITS
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & BITS
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & BITS
    return state ^ (state >> 31)


def reference(embedding: HashedEmbedding, index: int) -> torch.Tensor:
    if index < embedding.reserved:
        return embedding.weight[index]
    hashed = len(embedding.weight) - embedding.reserved
    golden = 0x9E3779B97F4A7C15
    numbers = [splitmix64(index + k * golden) & (2**63 - 1) for k in range(1, embedding.num_hashes + 1)]
    return embedding.weight[[embedding.reserved + number % hashed for number in numbers]].sum(0)


@settings(max_examples=40, deadline=None)
@given(
    index=st.integers(0, 2**62),
    rows=st.integers(1, 50),
    hashes=st.integers(1, 4),
    reserved=st.integers(0, 4),
)
def test_a_vector_is_the_sum_of_the_rows_that_exact_integer_hashing_names(index, rows, hashes, reserved):
    embedding = HashedEmbedding(2**62 + 1, 3, num_embeddings=rows, num_hashes=hashes, reserved=reserved, init_std=1.0)
    assert_close(embedding(torch.tensor([index]))[0], reference(embedding, index))


def test_hashes_are_pinned_for_life():
    embedding = HashedEmbedding(10, 1, num_embeddings=1000, num_hashes=2)
    places, counted = embedding._places(torch.tensor([0, 1, 9]))
    assert places.tolist() == [
        [splitmix64(index + k * 0x9E3779B97F4A7C15) % 2**63 % 1000 for k in (1, 2)] for index in (0, 1, 9)
    ]
    assert bool(counted.all())


def test_reserved_indices_have_rows_of_their_own_that_start_at_zero():
    embedding = HashedEmbedding(1000, 2, num_embeddings=5, num_hashes=3, reserved=3, padding_index=0)
    assert torch.equal(embedding(torch.arange(3)), torch.zeros(3, 2))
    embedding(torch.arange(3, 1000)).sum().backward()
    assert torch.equal(embedding.weight.grad[:3], torch.zeros(3, 2))
    embedding(torch.tensor([1, 2, 2, 0])).sum().backward()
    assert embedding.weight.grad[:3, 0].tolist() == [0.0, 1.0, 2.0]


def test_padding_reads_zero_even_from_a_table_that_is_not():
    embedding = HashedEmbedding(9, 2, num_embeddings=5, reserved=3, padding_index=0)
    torch.nn.init.ones_(embedding.weight)
    assert embedding(torch.tensor([0, 1, 5])).tolist() == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]


def test_two_hashes_tell_almost_all_values_apart_where_one_cannot():
    def distinct(hashes: int) -> int:
        embedding = HashedEmbedding(2000, 8, num_embeddings=500, num_hashes=hashes, init_std=1.0)
        return len(embedding(torch.arange(2000)).unique(dim=0))

    assert distinct(1) <= 500
    assert distinct(2) > 1950


@pytest.mark.parametrize("hashes", [1, 2, 4])
def test_vectors_start_with_the_stated_standard_deviation(hashes):
    made = HashedEmbedding(4000, 32, num_embeddings=2000, num_hashes=hashes, init_std=0.5)
    assert made(torch.arange(4000)).std().item() == pytest.approx(0.5, rel=0.1)


def test_growth_takes_new_indices_and_moves_nothing():
    embedding = HashedEmbedding(10, 2, num_embeddings=5)
    before = embedding(torch.arange(10))
    embedding.grow(20)
    assert torch.equal(embedding(torch.arange(10)), before)
    assert embedding(torch.tensor([19])).shape == (1, 2)
    with pytest.raises(IndexRangeError):
        embedding(torch.tensor([20]))


def test_sparse_gradients_equal_dense_ones():
    grads = []
    for sparse in (False, True):
        embedding = HashedEmbedding(
            50, 2, num_embeddings=7, reserved=3, sparse=sparse, generator=torch.Generator().manual_seed(0)
        )
        embedding(torch.tensor([1, 9, 9, 30])).sin().sum().backward()
        grads.append(embedding.weight.grad.to_dense())
    assert_close(grads[0], grads[1])
