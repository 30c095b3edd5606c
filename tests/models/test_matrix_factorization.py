import copy
import shutil
from dataclasses import dataclass
from functools import reduce

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.errors import FitError, IndexRangeError, SchemaError
from recsys_emb.lookup.pooling import pooled_weights
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema.columns import Categorical, MultiCategorical, Numeric, Position
from recsys_emb.schema.schema import Schema
from recsys_emb.schema.tables import Hashed, OneHot, QuotientRemainder


@dataclass
class Sizes:
    schema: Schema
    rows: int = 12

    def num_embeddings(self, name: str) -> int:
        return 2 if isinstance(self.schema[name], Numeric) else self.rows


IDS = Schema(user=Categorical("user"), item=Categorical("item"), embedding_dim=4)


def wide(**options: object) -> Schema:
    return Schema(
        user=Categorical("user", **options),
        item=Categorical("item", **options),
        position=Position("slot", max_position=8, vector=False),
        user_features=[Numeric("age"), MultiCategorical("liked", **options)],
        item_features=[MultiCategorical("tags", pooling="sqrtn", **options)],
        context_features=[Categorical("device", **options)],
        embedding_dim=4,
    )


def random_batch(rows: int, *, seed: int = 0) -> Batch:
    rng = torch.Generator().manual_seed(seed)

    def indices(count: int = rows) -> torch.Tensor:
        return torch.randint(0, 12, (count,), generator=rng)

    def lists() -> Jagged:
        lengths = torch.randint(0, 4, (rows,), generator=rng)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
        return Jagged(indices(int(offsets[-1])), offsets)

    numbers = torch.stack([torch.randn(rows, generator=rng), torch.zeros(rows)], 1)
    columns = {"user": indices(), "item": indices(), "slot": indices(), "device": indices(), "age": numbers}
    label = torch.randn(rows, generator=rng)
    return Batch({**columns, "liked": lists(), "tags": lists()}, label=label)


def trained(schema: Schema, **options: object) -> MatrixFactorization:
    """A model whose parameters are all away from zero, padding rows too."""
    model = MatrixFactorization(Sizes(schema), **options)
    rng = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, generator=rng)
    model.set_units(3.5, 1.1)
    return model


def test_a_user_and_an_item_make_biased_matrix_factorization():
    model = trained(IDS)
    (p, q), (b, c) = ([table.weight for table in embed.lookups] for embed in (model.vectors, model.biases))
    users, items = torch.tensor([3, 7, 3]), torch.tensor([11, 1, 2])
    expected = 3.5 + 1.1 * (b[users, 0] + c[items, 0] + (p[users] * q[items]).sum(1))
    assert_close(model(Batch({"user": users, "item": items})), expected)


def test_a_score_is_the_dot_product_of_two_sums_of_weighted_rows():
    model, batch = trained(wide()), random_batch(6)
    tables = {table.name: table for table in model.linear_tables()}
    score = torch.zeros(6)
    sides = []
    for names in (model.user_names, model.item_names):
        side = torch.zeros(6, 4)
        for name in names:
            column = batch[name]
            if isinstance(column, Jagged):
                ready = pooled_weights(column, model.schema[name].pooling)
                spread = torch.zeros(6, 12).index_put((ready.owners, ready.values), ready.weights, accumulate=True)
            elif name == "age":
                spread = column
            else:
                spread = torch.eye(12)[column] * (column != 0).unsqueeze(1)
            score += (spread @ tables[name].biases)[:, 0]
            side += 0 if tables[name].vectors is None else spread @ tables[name].vectors
        sides.append(side)
    score += (sides[0] * sides[1]).sum(1)
    assert_close(model.raw(batch), score, atol=1e-5, rtol=1e-5)


def test_forward_is_raw_in_the_units_of_the_label():
    model, batch = trained(wide()), random_batch(9)
    assert_close(model(batch), 3.5 + 1.1 * model.raw(batch), atol=1e-5, rtol=1e-5)


def test_terms_add_up_to_the_score_bit_for_bit():
    model, batch = trained(wide()), random_batch(9)
    terms = model.terms(batch)
    assert list(terms) == [
        "offset",
        *(f"bias:{name}" for name in ("user", "age", "liked", "device", "item", "tags", "slot")),
        "interaction",
    ]
    assert all(term.shape == (9,) for term in terms.values())
    assert torch.equal(reduce(torch.add, terms.values()), model(batch))


def test_sides_combine_to_the_raw_score():
    model, batch = trained(wide()), random_batch(9)
    users, user_biases = model.side(batch, model.user_names)
    items, item_biases = model.side(batch, model.item_names)
    assert torch.equal(user_biases + item_biases + (users * items).sum(1), model.raw(batch))


def test_a_side_of_no_or_vectorless_features_is_zero():
    model, batch = trained(wide()), random_batch(3)
    vectors, biases = model.side(batch, [])
    assert (vectors.shape, biases.shape) == ((3, 4), (3,))
    assert not bool(vectors.any() | biases.any())
    vectors, biases = model.side(batch, ["slot"])
    assert not bool(vectors.any())
    assert bool(biases.any())


def test_a_position_without_vector_keeps_its_bias():
    model = MatrixFactorization(Sizes(wide()))
    assert "slot" not in model.vectors.names
    assert "slot" in model.biases.names
    assert {table.name: table.vectors is None for table in model.linear_tables()}["slot"]


def test_a_newborn_model_scores_with_small_vectors_and_no_biases():
    model = MatrixFactorization(Sizes(wide()), seed=3, init_std=0.1)
    assert not any(bool(parameter.any()) for parameter in model.biases.parameters())
    assert model.vectors.lookup("user").weight[3:].std().item() == pytest.approx(0.1, rel=0.5)
    assert (float(model.offset), float(model.scale)) == (0.0, 1.0)


def test_reset_is_birth():
    model = MatrixFactorization(Sizes(wide()), seed=3, init_std=0.1)
    born = copy.deepcopy(model)
    for parameter in model.parameters():
        torch.nn.init.ones_(parameter)
    model.reset_parameters(init_std=0.1, seed=3)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), born.parameters(), strict=True))


@pytest.mark.parametrize("dim", [1, 4])
@pytest.mark.parametrize("rows", [0, 1, 2])
def test_batches_of_any_size_keep_one_dimension(rows, dim):
    model = MatrixFactorization(Sizes(wide()), embedding_dim=dim)
    assert model(random_batch(rows)).shape == (rows,)
    assert model.raw(random_batch(rows)).shape == (rows,)


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 9), dim=st.sampled_from([1, 3, 16, 33]), data=st.data())
def test_a_score_has_the_same_bits_in_every_batch(rows, dim, data):
    model, batch = trained(wide(), embedding_dim=dim), random_batch(9)
    chosen = torch.tensor(data.draw(st.lists(st.integers(0, 8), min_size=rows, max_size=rows)))
    assert torch.equal(model(batch.select(chosen)), model(batch)[chosen])


def step(model: MatrixFactorization, optimizer: torch.optim.Optimizer, batch: Batch) -> float:
    optimizer.zero_grad()
    loss = (model.raw(batch) - batch.label).square().mean()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


@pytest.mark.parametrize("dense_limit", [0, 2**20])
def test_one_hot_tables_give_the_same_scores_and_the_same_training(dense_limit):
    ours = MatrixFactorization(Sizes(wide()), seed=1, init_std=0.3)
    theirs = MatrixFactorization(Sizes(wide(table=OneHot(dense_limit=dense_limit))), seed=1, init_std=0.3)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (ours, theirs)]
    assert torch.equal(ours(random_batch(50)), theirs(random_batch(50)))
    for seed in range(20):
        batch = random_batch(50, seed=seed)
        losses = [step(model, optimizer, batch) for model, optimizer in zip((ours, theirs), optimizers, strict=True)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert_close(ours(random_batch(50)), theirs(random_batch(50)), atol=1e-5, rtol=1e-5)
    for mine, other in zip(ours.linear_tables(), theirs.linear_tables(), strict=True):
        assert_close(mine.biases, other.biases, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("table", [Hashed(8), QuotientRemainder(3), OneHot()])
def test_every_kind_of_table_trains(table):
    model = MatrixFactorization(Sizes(wide(table=table)), init_std=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    batch = random_batch(40)
    losses = [step(model, optimizer, batch) for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0]


def test_padding_adds_nothing_and_never_learns():
    model = trained(wide())
    before = [table.weight[0].clone() for table in model.vectors.lookups if table.name != "age"]
    batch = random_batch(4).replacing({"user": torch.zeros(4, dtype=torch.int64)})
    assert not bool(model.terms(batch)["bias:user"].any())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(3):
        step(model, optimizer, batch)
    after = [table.weight[0] for table in model.vectors.lookups if table.name != "age"]
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))


def test_linear_tables_are_the_model_itself():
    model, batch = trained(wide(table=OneHot())), random_batch(9)
    before = model(batch)
    for table in model.linear_tables():
        table.biases.zero_()
        if table.vectors is not None:
            table.vectors.zero_()
    assert not torch.equal(model(batch), before)
    assert torch.equal(model(batch), torch.full((9,), 3.5))


MAX_POOLED = Schema(
    user=Categorical("user"), item=Categorical("item"), item_features=[MultiCategorical("tags", pooling="max")]
)


@pytest.mark.parametrize(("schema", "reason"), [
    (wide(), None),
    (wide(table=OneHot()), None),
    (wide(table=Hashed(8)), "feature 'user' reads a HashedEmbedding, which holds no row per index"),
    (
        wide(table=QuotientRemainder(3)),
        "feature 'user' reads a QuotientRemainderEmbedding, which holds no row per index",
    ),
    (MAX_POOLED, "feature 'tags' pools by 'max', which is no weighted sum"),
])  # fmt: skip
def test_why_not_linear_names_the_first_feature_that_is_not(schema, reason):
    model = MatrixFactorization(Sizes(schema))
    assert model.why_not_linear() == reason
    if reason is not None:
        with pytest.raises(FitError) as caught:
            model.linear_tables()
        assert str(caught.value) == (
            f"MatrixFactorization: expected a table behind every feature, but {reason}. Train with Minibatch()."
        )


@pytest.mark.parametrize("side", ["user", "item"])
def test_a_side_without_features_is_refused(side):
    other = {"user": "item", "item": "user"}[side]
    with pytest.raises(SchemaError) as caught:
        MatrixFactorization(Sizes(Schema(**{other: Categorical("x")})))
    assert str(caught.value) == (
        f"MatrixFactorization: expected a feature on the {side} side, got none. Declare {side}=Categorical(...)."
    )


@pytest.mark.parametrize("width", ["auto", {"user": 3, "item": 3}])
def test_features_with_widths_of_their_own_are_refused(width):
    with pytest.raises(SchemaError) as caught:
        MatrixFactorization(Sizes(IDS), embedding_dim=width)
    assert str(caught.value) == (
        f"MatrixFactorization: expected one embedding_dim, got {width!r}. The vectors of both sides meet in a dot "
        "product, so that all are as wide; state an integer."
    )


def test_unpooled_lists_are_refused():
    schema = Schema(
        user=Categorical("user"), item=Categorical("item"), item_features=[MultiCategorical("tags", pooling="none")]
    )
    with pytest.raises(SchemaError) as caught:
        MatrixFactorization(Sizes(schema))
    assert str(caught.value) == (
        "MatrixFactorization: expected one vector per row, got pooling='none' of 'tags'. "
        "Pool it by 'mean', 'sum', 'sqrtn' or 'max'."
    )


GROWERS = {
    "SGD": (False, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    "Adam": (False, lambda p: torch.optim.Adam(p, lr=0.1)),
    "Adagrad": (False, lambda p: torch.optim.Adagrad(p, lr=0.1)),
    "SparseAdam": (True, lambda p: torch.optim.SparseAdam(p, lr=0.1)),
}


@pytest.mark.parametrize("name", GROWERS)
def test_growth_keeps_scores_and_optimizer_state_bit_for_bit(name):
    sparse, make = GROWERS[name]
    model = MatrixFactorization(Sizes(IDS), init_std=0.1, sparse=sparse)
    optimizer = make(list(model.parameters()))
    for seed in range(3):
        step(model, optimizer, random_batch(8, seed=seed))
    scores = model(random_batch(9))
    held = {p: {k: v.clone() for k, v in optimizer.state[p].items() if torch.is_tensor(v)} for p in model.parameters()}

    model.grow(Sizes(IDS, 15), optimizer)

    assert torch.equal(model(random_batch(9)), scores)
    for parameter, state in held.items():
        assert parameter.shape[0] == 15
        for key, value in state.items():
            grown = optimizer.state[parameter][key]
            assert torch.equal(grown[: len(value)] if value.ndim else grown, value)
            assert not bool(grown[len(value) :].any() if value.ndim else False)
    assert not bool(model.biases.lookup("item").weight[12:].any())
    assert bool(model.vectors.lookup("item").weight[12:].all())
    fresh = Batch({"user": torch.tensor([14]), "item": torch.tensor([13])}, label=torch.tensor([1.0]))
    step(model, optimizer, fresh)


def test_a_state_dict_restores_every_score():
    model, other = trained(wide()), MatrixFactorization(Sizes(wide()))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(random_batch(9)), model(random_batch(9)))


def test_double_precision_all_through():
    model = trained(wide()).double()
    assert model(random_batch(3)).dtype == torch.float64


def test_gradients_agree_with_finite_differences():
    model, batch = trained(wide(), embedding_dim=2).double(), random_batch(4)
    names, values = zip(*model.named_parameters(), strict=True)

    def score(*tensors: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, dict(zip(names, tensors, strict=True)), (batch,))

    assert torch.autograd.gradcheck(score, values)


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's own, at a break of the graph
@pytest.mark.parametrize("checked", [True, False])
def test_compiled_and_eager_scores_agree_and_raise_alike(checked):
    model = trained(wide())
    compiled = torch.compile(model, backend="eager")
    limits = dict.fromkeys(model.schema.names, 12) if checked else {}
    for rows in (6, 9):
        batch = random_batch(rows)
        assert_close(compiled(Batch(batch.columns, limits=limits)), model(batch))
    if not checked:
        with pytest.raises(IndexRangeError, match=r"feature 'item': expected indices in \[0, 12\), got 12 "):
            compiled(random_batch(3).replacing({"item": torch.tensor([3, 12, 4])}))
    torch._dynamo.reset()


def test_checked_batches_compile_to_one_graph():
    model = trained(wide())
    batch = Batch(random_batch(6).columns, limits=dict.fromkeys(model.schema.names, 12))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert_close(compiled(batch), model(batch))
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore")  # of the code generator's own making
@pytest.mark.skipif(shutil.which("g++") is None, reason="the code generator of torch.compile needs a C++ compiler")
def test_generated_code_and_eager_agree_in_scores_and_gradients():
    model = trained(IDS)
    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    for rows in (6, 9):
        batch = Batch(random_batch(rows).columns, limits={"user": 12, "item": 12})
        expected, found = model(batch), compiled(batch)
        assert_close(found, expected)
        weights = list(model.parameters())
        gradients = [torch.autograd.grad(scores.pow(2).sum(), weights) for scores in (expected, found)]
        assert_close(gradients[1], gradients[0])
    torch._dynamo.reset()


class Scorer(torch.nn.Module):
    """Tensors to scores, the signature that an exported program can have."""

    def __init__(self, model: MatrixFactorization) -> None:
        super().__init__()
        self.model = model

    def forward(self, columns: dict[str, torch.Tensor | tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
        made = {name: Jagged(*c) if isinstance(c, tuple) else c for name, c in columns.items()}
        return self.model(Batch(made))


def tensors_of(batch: Batch) -> dict[str, torch.Tensor | tuple[torch.Tensor, torch.Tensor]]:
    return {name: (c.values, c.offsets) if isinstance(c, Jagged) else c for name, c in batch.columns.items()}


@pytest.mark.filterwarnings("ignore")  # of torch.export's own making
def test_an_exported_program_scores_any_number_of_rows():
    from torch.fx.experimental import _config

    model = trained(wide())
    example = tensors_of(random_batch(6))
    dynamic = {0: torch.export.Dim.DYNAMIC}
    shapes = {name: (dynamic, dynamic) if isinstance(column, tuple) else dynamic for name, column in example.items()}
    # Without it an exported program refuses single rows.
    with _config.patch(backed_size_oblivious=True):
        program = torch.export.export(Scorer(model), (example,), dynamic_shapes=(shapes,), strict=False)
        for rows in (1, 2, 6, 17):
            batch = random_batch(rows, seed=rows)
            assert_close(program.module()(tensors_of(batch)), model(batch))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_agrees_with_cpu_and_repeats_itself():
    model, batch = trained(wide()), random_batch(500)
    expected = model(batch)
    on_device = model.cuda()
    first = on_device(batch.to("cuda"))
    assert_close(first.cpu(), expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(on_device(batch.to("cuda")), first)
    with pytest.raises(IndexRangeError, match="feature 'item'"):
        on_device(batch.replacing({"item": torch.full((500,), 12)}).to("cuda"))
    assert torch.equal(on_device(batch.to("cuda")), first)
