import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from recsys_emb.errors import IndexRangeError
from recsys_emb.lookup.quotient_remainder import QuotientRemainderEmbedding


@settings(max_examples=30, deadline=None)
@given(V=st.integers(3, 60), buckets=st.integers(1, 12), reserved=st.integers(0, 3))
def test_a_vector_is_the_product_of_its_quotient_and_remainder_rows(V, buckets, reserved):
    embedding = QuotientRemainderEmbedding(V, 3, buckets=buckets, reserved=reserved, init_std=1.0)
    vectors = embedding(torch.arange(V))
    for index in range(reserved):
        assert torch.equal(vectors[index], torch.zeros(3))
    for index in range(reserved, V):
        quotient, remainder = divmod(index - reserved, buckets)
        assert torch.equal(vectors[index], embedding.quotients[reserved + quotient] * embedding.remainders[remainder])


def test_every_index_has_a_vector_of_its_own():
    embedding = QuotientRemainderEmbedding(1000, 16, buckets=32)
    assert len(embedding(torch.arange(1000)).unique(dim=0)) == 1000


def test_reserved_rows_learn_alone_and_padding_never():
    embedding = QuotientRemainderEmbedding(20, 2, buckets=4, reserved=3, padding_index=0)
    embedding(torch.tensor([0, 1, 2])).sum().backward()
    assert embedding.quotients.grad[:, 0].tolist() == [0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert not bool(embedding.remainders.grad.any())
    torch.nn.init.ones_(embedding.quotients)
    assert embedding(torch.tensor([0])).tolist() == [[0.0, 0.0]]


def test_a_start_at_zero_can_learn():
    embedding = QuotientRemainderEmbedding(20, 2, buckets=4, init_std=0.0)
    assert not bool(embedding(torch.arange(20)).any())
    optimizer = torch.optim.SGD(embedding.parameters(), lr=0.1)
    (embedding(torch.tensor([7])) - 1.0).square().sum().backward()
    optimizer.step()
    assert bool((embedding(torch.tensor([7])) > 0.0).all())


def test_vectors_start_with_the_stated_standard_deviation():
    embedding = QuotientRemainderEmbedding(10_000, 16, buckets=100, init_std=0.5)
    assert embedding(torch.arange(10_000)).std().item() == pytest.approx(0.5, rel=0.1)


def test_growth_appends_quotients_and_keeps_old_vectors_bit_for_bit():
    embedding = QuotientRemainderEmbedding(20, 2, buckets=4, reserved=3)
    before = embedding(torch.arange(20))
    embedding.grow(23)
    assert len(embedding.quotients) == 3 + 5
    embedding.grow(24)
    assert len(embedding.quotients) == 3 + 6
    assert torch.equal(embedding(torch.arange(20)), before)
    assert bool(embedding(torch.tensor([23])).all())
    with pytest.raises(IndexRangeError):
        embedding(torch.tensor([24]))


def test_sparse_gradients_equal_dense_ones():
    grads = []
    for sparse in (False, True):
        embedding = QuotientRemainderEmbedding(
            50, 2, buckets=7, reserved=3, sparse=sparse, generator=torch.Generator().manual_seed(0)
        )
        embedding(torch.tensor([1, 9, 9, 30])).sin().sum().backward()
        grads.append([parameter.grad.to_dense() for parameter in embedding.parameters()])
    assert_close(grads[0], grads[1])
