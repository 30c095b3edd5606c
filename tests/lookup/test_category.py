import copy
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from recsys_emb.errors import DataError, FitError, IndexRangeError
from recsys_emb.lookup.base import check_indices
from recsys_emb.lookup.category import CategoryEmbedding

shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
dtypes = st.sampled_from([torch.float32, torch.float64])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(max_examples=40, deadline=None)
@given(V=st.integers(1, 9), D=st.integers(1, 5), shape=shapes, seed=st.integers(0, 99), dtype=dtypes)
def test_lookup_one_hot_product_and_bias_free_linear_agree_forward_and_backward(V, D, shape, seed, dtype):
    indices = torch.randint(0, V, shape, generator=generator(seed))
    embedding = CategoryEmbedding(V, D, init_std=1.0, generator=generator(seed)).to(dtype)
    matrix = embedding.weight.detach().clone().requires_grad_()
    linear = nn.Linear(V, D, bias=False, dtype=dtype)
    linear.weight.data = matrix.detach().T.clone()
    encoded = nn.functional.one_hot(indices, V).to(dtype)
    wanted = torch.randn(*shape, D, dtype=dtype, generator=generator(seed + 1))

    looked_up, product, projected = embedding(indices), encoded @ matrix, linear(encoded)
    for vectors in (looked_up, product, projected):
        (vectors * wanted).sum().backward()

    assert looked_up.shape == (*shape, D)
    assert_close(looked_up, embedding.weight[indices])
    assert_close(looked_up, product)
    assert_close(looked_up, projected)
    assert_close(embedding.weight.grad, matrix.grad)
    assert_close(embedding.weight.grad, linear.weight.grad.T)


def test_only_looked_up_rows_have_gradient_and_repeats_add_up():
    embedding = CategoryEmbedding(5, 2)
    embedding(torch.tensor([3, 1, 3, 3])).sum().backward()
    assert embedding.weight.grad[:, 0].tolist() == [0.0, 1.0, 0.0, 3.0, 0.0]


def test_any_leading_shape_gains_a_last_dimension():
    embedding = CategoryEmbedding(5, 1)
    assert embedding(torch.tensor(3)).shape == (1,)
    assert embedding(torch.empty(0, dtype=torch.int64)).shape == (0, 1)
    assert embedding(torch.zeros(2, 0, 4, dtype=torch.int32)).shape == (2, 0, 4, 1)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_every_integer_dtype_reads_the_same_rows(dtype):
    embedding = CategoryEmbedding(200, 3)
    assert torch.equal(embedding(torch.tensor([100, 0], dtype=dtype)), embedding.weight[[100, 0]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bool])
def test_floats_and_booleans_are_refused(dtype):
    with pytest.raises(TypeError) as caught:
        CategoryEmbedding(5, 2, name="item_id")(torch.ones(2, dtype=dtype))
    assert str(caught.value) == (
        f"feature 'item_id': expected an integer tensor, got {dtype}. "
        "Indices never pass through floats; encode the values with a Vocabulary."
    )


def test_a_plain_list_is_refused():
    with pytest.raises(TypeError) as caught:
        CategoryEmbedding(5, 2, name="item_id")([1, 2])
    assert str(caught.value) == "feature 'item_id': expected an integer tensor, got list. Wrap it in torch.tensor(...)."


@pytest.mark.parametrize(("indices", "value", "place"), [
    (torch.tensor([0, 12, 99]), 12, "1"),
    (torch.tensor([[0, 1], [-1, 2]]), -1, "(1, 0)"),
    (torch.tensor(1_000_000), 1_000_000, "()"),
])  # fmt: skip
def test_an_index_outside_the_table_is_named_with_its_place(indices, value, place):
    with pytest.raises(IndexRangeError) as caught:
        CategoryEmbedding(12, 2, name="item_id")(indices)
    assert str(caught.value) == (
        f"feature 'item_id': expected indices in [0, 12), got {value} (first at position {place}). Encode the values "
        "with the encoder that the table was sized by; num_embeddings counts the reserved rows."
    )


def test_meta_tensors_have_no_values_to_check():
    check_indices(torch.empty(3, dtype=torch.int64, device="meta"), 1, "item_id")


INITIALISERS = [
    nn.init.normal_,
    nn.init.uniform_,
    nn.init.ones_,
    nn.init.xavier_uniform_,
    nn.init.xavier_normal_,
    nn.init.kaiming_uniform_,
    nn.init.kaiming_normal_,
    nn.init.trunc_normal_,
    nn.init.orthogonal_,
    partial(nn.init.sparse_, sparsity=0.2),
]


@pytest.mark.parametrize("initialiser", INITIALISERS)
def test_padding_reads_zero_and_learns_nothing_under_every_initialiser(initialiser):
    embedding = CategoryEmbedding(6, 4, padding_index=2)
    initialiser(embedding.weight)
    vectors = embedding(torch.tensor([2, 3, 2]))
    (vectors.sum() + embedding.table().sum()).backward()
    assert torch.equal(vectors[[0, 2]], torch.zeros(2, 4))
    assert torch.equal(embedding.table()[2], torch.zeros(4))
    assert torch.equal(embedding.weight.grad[2], torch.zeros(4))
    assert embedding.weight.grad[3].abs().sum() > 0


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.1),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.1),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, weight_decay=0.1),
    "sparse SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "sparse Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "SparseAdam": lambda p: torch.optim.SparseAdam(p, lr=0.1),
}


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch's own Adagrad provokes it
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_padding_row_stays_zero_under_every_optimizer(name):
    sparse = name.lower().startswith("sparse")
    embedding = CategoryEmbedding(6, 4, padding_index=0, init_std=1.0, sparse=sparse)
    optimizer = OPTIMIZERS[name](list(embedding.parameters()))
    before = embedding.weight.detach().clone()
    for _ in range(5):
        optimizer.zero_grad()
        embedding(torch.tensor([0, 3, 0, 4])).square().sum().backward()
        optimizer.step()
    assert torch.equal(embedding.weight[0], torch.zeros(4))
    assert not torch.equal(embedding.weight[3], before[3])


def test_table_gives_tied_weights_the_gradient_of_the_lookup():
    embedding = CategoryEmbedding(4, 3, padding_index=0, init_std=1.0)
    hidden = torch.randn(2, 3, generator=generator())
    (hidden @ embedding.table().T).sum().backward()
    assert torch.equal(embedding.weight.grad[0], torch.zeros(3))
    assert_close(embedding.weight.grad[1:], hidden.sum(0).expand(3, 3))


def test_one_generator_state_gives_one_table_and_reserved_rows_start_at_zero():
    first = CategoryEmbedding(9, 4, reserved=3, generator=generator(5))
    second = CategoryEmbedding(9, 4, reserved=3, generator=generator(5))
    other = CategoryEmbedding(9, 4, reserved=3, generator=generator(6))
    assert torch.equal(first.weight, second.weight)
    assert not torch.equal(first.weight, other.weight)
    assert torch.equal(first.weight[:3], torch.zeros(3, 4))
    assert bool((first.weight[3:] != 0).all())


def test_a_given_generator_leaves_the_global_stream_alone():
    state = torch.get_rng_state()
    CategoryEmbedding(9, 4, generator=generator(5))
    assert torch.equal(torch.get_rng_state(), state)


def test_rows_start_with_the_stated_standard_deviation():
    weight = CategoryEmbedding(2000, 50, init_std=0.3, generator=generator()).weight
    assert weight.std().item() == pytest.approx(0.3, rel=0.01)
    assert weight.mean().item() == pytest.approx(0.0, abs=0.005)


def test_reset_draws_as_at_birth():
    embedding = CategoryEmbedding(9, 4, padding_index=0, reserved=2, generator=generator(5))
    born = embedding.weight.detach().clone()
    nn.init.ones_(embedding.weight)
    embedding.reset_parameters(generator=generator(5))
    assert torch.equal(embedding.weight, born)
    embedding.reset_parameters(init_std=0.0, generator=generator(5))
    assert torch.equal(embedding.weight, torch.zeros(9, 4))


@pytest.mark.parametrize("freeze", [True, False])
def test_from_pretrained_copies_the_table_and_zeroes_padding(freeze):
    given_table = torch.ones(3, 2)
    embedding = CategoryEmbedding.from_pretrained(given_table, freeze=freeze, padding_index=1)
    assert embedding.weight.tolist() == [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]
    assert embedding.weight.requires_grad is not freeze
    assert torch.equal(given_table, torch.ones(3, 2))
    nn.init.zeros_(embedding.weight)
    embedding.reset_parameters()
    assert embedding.weight.tolist() == [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]


def test_from_pretrained_refuses_what_is_no_table():
    with pytest.raises(DataError) as caught:
        CategoryEmbedding.from_pretrained(torch.ones(3), name="word")
    assert str(caught.value) == (
        "CategoryEmbedding('word'): expected a floating-point table (V, D), got (3,) of torch.float32. "
        "One row per index."
    )


def test_a_padding_index_outside_the_table_is_refused():
    with pytest.raises(IndexRangeError) as caught:
        CategoryEmbedding(3, 2, padding_index=3, name="word")
    assert str(caught.value) == (
        "CategoryEmbedding('word'): expected padding_index in [0, 3), got 3. Name one of the rows."
    )


def test_tables_never_shrink():
    with pytest.raises(FitError) as caught:
        CategoryEmbedding(12, 2, name="item_id").grow(10)
    assert str(caught.value) == (
        "feature 'item_id': expected at least 12 rows, got 10. Tables only grow; use the encoder that partial_fit "
        "extended."
    )


def test_sparse_and_dense_gradients_are_the_same_update():
    dense = CategoryEmbedding(6, 3, padding_index=0, generator=generator())
    sparse = CategoryEmbedding(6, 3, padding_index=0, generator=generator(), sparse=True)
    for embedding in (dense, sparse):
        optimizer = torch.optim.SGD(embedding.parameters(), lr=0.5)
        embedding(torch.tensor([[2, 0], [2, 5]])).sin().sum().backward()
        optimizer.step()
    assert sparse.weight.grad.is_sparse
    assert_close(sparse.weight, dense.weight)


def test_a_copy_and_a_state_dict_round_trip_keep_every_bit():
    embedding = CategoryEmbedding(6, 3, padding_index=0)
    other = CategoryEmbedding(6, 3, padding_index=0)
    other.load_state_dict(embedding.state_dict())
    assert torch.equal(other.weight, embedding.weight)
    assert torch.equal(copy.deepcopy(embedding).weight, embedding.weight)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_agrees_with_cpu_and_an_index_error_leaves_the_device_usable():
    embedding = CategoryEmbedding(12, 4, padding_index=0, name="item_id")
    indices = torch.tensor([[3, 0], [11, 3]])
    expected = embedding(indices)
    on_device = copy.deepcopy(embedding).cuda()
    assert_close(on_device(indices.cuda()).cpu(), expected)
    with pytest.raises(IndexRangeError, match=r"feature 'item_id': expected indices in \[0, 12\), got 12"):
        on_device(torch.tensor([12], device="cuda"))
    assert_close(on_device(indices.cuda()).cpu(), expected)


def test_max_norm_bounds_what_is_read_and_never_rewrites_the_weight() -> None:
    embedding = CategoryEmbedding(3, 2, max_norm=1.0)
    with torch.no_grad():
        embedding.weight.copy_(torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]]))
    before = embedding.weight.detach().clone()
    read = embedding(torch.tensor([0, 1, 2]))
    torch.testing.assert_close(read, torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))
    torch.testing.assert_close(embedding.table(), read)
    read.sum().backward()
    assert embedding.weight.grad is not None
    assert embedding.weight.grad.isfinite().all()
    assert torch.equal(embedding.weight, before)


def test_a_max_norm_of_zero_is_refused() -> None:
    with pytest.raises(DataError) as caught:
        CategoryEmbedding(3, 2, max_norm=0.0)
    assert str(caught.value) == (
        "CategoryEmbedding('category'): expected max_norm above 0 or None, got 0.0. None bounds nothing."
    )
