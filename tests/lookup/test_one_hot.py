import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from recsys_emb.errors import IndexRangeError
from recsys_emb.lookup.category import CategoryEmbedding
from recsys_emb.lookup.one_hot import OneHotProjection, one_hot

shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(max_examples=30, deadline=None)
@given(V=st.integers(1, 9), shape=shapes, seed=st.integers(0, 99))
def test_dense_and_sparse_encodings_equal_rows_of_the_identity(V, shape, seed):
    indices = torch.randint(0, V, shape, generator=generator(seed))
    encoded = one_hot(indices, V)
    assert torch.equal(encoded, torch.eye(V)[indices])
    assert torch.equal(one_hot(indices, V, sparse=True).to_dense(), encoded)


def test_the_width_is_the_stated_one_whatever_the_rows_hold():
    assert one_hot(torch.tensor([0, 0]), 7).shape == (2, 7)
    assert one_hot(torch.empty(0, dtype=torch.int64), 7).shape == (0, 7)


def test_a_sparse_encoding_stores_one_entry_per_index_and_multiplies_like_the_dense_one():
    indices, matrix = torch.tensor([2, 0, 2]), torch.randn(4, 3, generator=generator())
    encoded = one_hot(indices, 4, sparse=True)
    assert encoded._nnz() == 3
    assert_close(torch.sparse.mm(encoded, matrix), matrix[indices])


@pytest.mark.parametrize("sparse", [False, True])
def test_an_index_beyond_the_classes_is_named(sparse):
    with pytest.raises(IndexRangeError) as caught:
        one_hot(torch.tensor([1, 3]), 3, sparse=sparse, name="brand")
    assert str(caught.value) == (
        "feature 'brand': expected indices in [0, 3), got 3 (first at position 1). Encode the values with the encoder "
        "that the table was sized by; num_embeddings counts the reserved rows."
    )


@settings(max_examples=40, deadline=None)
@given(
    V=st.integers(1, 9),
    D=st.integers(1, 5),
    shape=shapes,
    dtype=st.sampled_from([torch.float32, torch.float64]),
    data=st.data(),
)
def test_a_projection_is_its_embedding_forward_and_backward(V, D, shape, dtype, data):
    seed, dense_limit = data.draw(st.integers(0, 99)), data.draw(st.sampled_from([0, 2**20]))
    padding = data.draw(st.booleans())
    indices = torch.randint(0, V, shape, generator=generator(seed))
    wanted = torch.randn(*shape, D, dtype=dtype, generator=generator(seed + 1))
    embedding = CategoryEmbedding(V, D, padding_index=0 if padding else None, generator=generator(seed)).to(dtype)
    projection = OneHotProjection.from_embedding(embedding, dense_limit=dense_limit)
    for lookup in (embedding, projection):
        (lookup(indices) * wanted).sum().backward()
    assert torch.equal(projection(indices), embedding(indices))
    assert torch.equal(projection.table(), embedding.table())
    assert_close(projection.weight.grad, embedding.weight.grad.T)


def test_conversion_there_and_back_keeps_every_bit_and_shares_nothing():
    embedding = CategoryEmbedding(6, 3, padding_index=0, reserved=2, init_std=0.5, name="brand")
    back = OneHotProjection.from_embedding(embedding).to_embedding()
    assert torch.equal(back.weight, embedding.weight)
    assert (back.padding_index, back.reserved, back.init_std, back.name) == (0, 2, 0.5, "brand")
    assert back.weight.requires_grad
    with torch.no_grad():
        back.weight.fill_(9.0)
    assert not bool((embedding.weight == 9.0).any())


def test_equal_generators_give_equal_tables():
    embedding = CategoryEmbedding(6, 3, reserved=2, generator=generator(4))
    projection = OneHotProjection(6, 3, reserved=2, generator=generator(4))
    assert torch.equal(projection.storage(), embedding.storage())


def test_storage_writes_the_parameter():
    projection = OneHotProjection(6, 3)
    projection.storage()[4] = 7.0
    assert projection.weight[:, 4].tolist() == [7.0, 7.0, 7.0]


@pytest.mark.parametrize("dense_limit", [0, 2**20])
def test_the_padding_column_reads_zero_and_learns_nothing(dense_limit):
    projection = OneHotProjection(6, 3, padding_index=0, dense_limit=dense_limit)
    torch.nn.init.ones_(projection.weight)
    vectors = projection(torch.tensor([0, 2]))
    vectors.sum().backward()
    assert vectors.tolist() == [[0.0] * 3, [1.0] * 3]
    assert projection.weight.grad.sum(0).tolist() == [0.0, 0.0, 3.0, 0.0, 0.0, 0.0]


def test_above_the_limit_nothing_of_the_size_of_the_one_hot_matrix_is_made():
    projection = OneHotProjection(10, 2, dense_limit=10 * 4 * 3)
    shapes_made = []

    class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            shapes_made.extend([tuple(out.shape)] if isinstance(out, torch.Tensor) else [])
            return out

    with Recorder():
        projection(torch.tensor([1, 2, 3]))
    assert (3, 10) in shapes_made
    shapes_made.clear()
    with Recorder():
        projection(torch.tensor([1, 2, 3, 4]))
    assert (4, 10) not in shapes_made


def test_below_the_limit_one_matrix_of_that_size_is_made():
    projection = OneHotProjection(10, 2, padding_index=0)
    made = []

    class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            made.append(function(*args, **(kwargs or {})))
            return made[-1]

    with Recorder():
        projection(torch.tensor([1, 2, 0]))
    matrices = [one for one in made if isinstance(one, torch.Tensor) and one.shape == (3, 10)]
    assert len({one.untyped_storage().data_ptr() for one in matrices}) == 1
