"""A `FusedEmbedding` reads as a `FeatureEmbedding` does, and learns in backward as the optimizer of the same name."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.errors import IndexRangeError, SchemaError
from recsys_emb.lookup.category import CategoryEmbedding
from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.lookup.fused_embedding import FusedEmbedding
from recsys_emb.lookup.row_rules import AdagradUpdate, LazyAdamUpdate, RowRule, RowWiseAdagradUpdate, SGDUpdate
from recsys_emb.schema.columns import Categorical, MultiCategorical, Numeric, Position
from recsys_emb.schema.schema import Schema
from recsys_emb.schema.tables import Hashed, OneHot
from recsys_emb.training.optim import LazyAdam, RowWiseAdagrad
from recsys_emb.vocabulary.reserved import PADDING_INDEX


@dataclass
class Sizes:
    schema: Schema
    rows: int = 12

    def num_embeddings(self, name: str) -> int:
        return 2 if isinstance(self.schema[name], Numeric) else self.rows


PLAIN = Schema(user=Categorical("user"), item=Categorical("item"), position=Position("slot", max_position=8))
LISTS = Schema(
    user=Categorical("user"),
    item=Categorical("item"),
    user_features=[MultiCategorical("recent", vocabulary="item", share_table=True)],
    item_features=[MultiCategorical("tags", pooling="sqrtn"), MultiCategorical("words", pooling="none")],
)
# Which row is the largest may depend on rounding, so this one is not learned in two precisions.
LARGEST = Schema(user=Categorical("user"), item_features=[MultiCategorical("tags", pooling="max")])
MIXED = Schema(
    user=Categorical("user"),
    item=Categorical("item"),
    user_features=[Numeric("age")],
    item_features=[Categorical("brand", table=OneHot()), Categorical("shop", table=Hashed(6))],
)
OPTIMIZERS: dict[str, tuple[RowRule, Callable[..., torch.optim.Optimizer]]] = {
    "sgd": (SGDUpdate(lr=0.05), lambda params: torch.optim.SGD(params, lr=0.05)),
    "adagrad": (
        AdagradUpdate(lr=0.05, initial_accumulator_value=0.1),
        lambda params: torch.optim.Adagrad(params, lr=0.05, eps=1e-8, initial_accumulator_value=0.1),
    ),
    "row_wise_adagrad": (RowWiseAdagradUpdate(lr=0.05), lambda params: RowWiseAdagrad(params, lr=0.05)),
    "lazy_adam": (LazyAdamUpdate(lr=0.05), lambda params: LazyAdam(params, lr=0.05)),
}


@pytest.fixture(params=[True, False], ids=["compiled", "plain"])
def compiled(request: pytest.FixtureRequest) -> bool:
    return request.param


def batch_of(schema: Schema, size: int, seed: int, rows: int = 12) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    columns: dict[str, Tensor | Jagged] = {}
    for feature in schema.features:
        if isinstance(feature, Numeric):
            columns[feature.name] = torch.randn(size, 2, generator=generator)
        elif isinstance(feature, MultiCategorical):
            lengths = torch.randint(0, 4, (size,), generator=generator)
            values = torch.randint(0, rows, (int(lengths.sum()),), generator=generator)
            columns[feature.name] = Jagged(values, torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]))
        else:
            columns[feature.name] = torch.randint(0, rows, (size,), generator=generator)
    return Batch(columns)


def loss_of(vectors: dict[str, Tensor], seed: int) -> Tensor:
    """A loss whose gradient differs from entry to entry and depends on the vectors."""
    generator = torch.Generator().manual_seed(seed)
    targets = {name: torch.randn(one.shape, generator=generator) for name, one in vectors.items()}
    return torch.stack([(one - targets[name]).square().sum() for name, one in vectors.items()]).sum()


def fused(schema: Schema, update: RowRule, *, rows: int = 12, **options: object) -> FusedEmbedding:
    return FusedEmbedding(Sizes(schema, rows), update=update, embedding_dim=4, **options)


def state_of(embed: nn.Module) -> dict[str, Tensor]:
    return {name: one.clone() for name, one in embed.state_dict().items()}


# --- reading -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [PLAIN, LISTS, LARGEST, MIXED])
@pytest.mark.parametrize("size", [0, 1, 7])
def test_it_reads_what_a_feature_embedding_of_the_same_seed_reads(schema, size, compiled):
    batch = batch_of(schema, size, seed=3)
    expected = FeatureEmbedding(Sizes(schema), embedding_dim=4, seed=5)(batch)
    embed = fused(schema, SGDUpdate(lr=1), seed=5, compiled=compiled)
    for vectors in (embed(batch), embed.eval()(batch), {name: embed.vectors_of(name, batch) for name in embed.names}):
        assert list(vectors) == list(expected)
        for name, one in expected.items():
            assert_close(vectors[name], one, rtol=0, atol=0)


@pytest.mark.parametrize("schema", [PLAIN, MIXED])
@pytest.mark.parametrize("size", [0, 1, 7])
def test_concatenated_is_the_vectors_side_by_side(schema, size, compiled):
    embed, batch = fused(schema, SGDUpdate(lr=1), compiled=compiled), batch_of(schema, size, seed=3)
    assert torch.equal(embed.concatenated(batch), torch.cat(list(embed(batch).values()), 1))


def test_concatenated_refuses_vectors_that_are_several():
    with pytest.raises(SchemaError) as caught:
        fused(LISTS, SGDUpdate(lr=1)).concatenated(batch_of(LISTS, 3, seed=0))
    assert str(caught.value) == (
        "FusedEmbedding.concatenated: expected one vector per row, got pooling='none' of 'words'. "
        "Pool it by 'mean', 'sum', 'sqrtn' or 'max'."
    )


def test_an_index_outside_its_table_is_refused_before_anything_is_read():
    batch = Batch({**batch_of(PLAIN, 3, seed=0).columns, "item": torch.tensor([3, 12, 4])})
    with pytest.raises(IndexRangeError) as caught:
        fused(PLAIN, SGDUpdate(lr=1))(batch)
    assert str(caught.value) == (
        "feature 'item': expected indices in [0, 12), got 12 (first at position 1). Encode the values with the encoder "
        "that the table was sized by; num_embeddings counts the reserved rows."
    )


def test_indices_of_any_integer_type_are_read(compiled):
    embed, batch = fused(PLAIN, SGDUpdate(lr=1), compiled=compiled), batch_of(PLAIN, 9, seed=0)
    narrow = Batch({name: batch.indices(name).to(torch.int32) for name in embed.names})
    assert torch.equal(embed.concatenated(narrow), embed.concatenated(batch))
    assert torch.equal(embed(narrow)["item"], embed(batch)["item"])


# --- learning ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", OPTIMIZERS)
@pytest.mark.parametrize("schema", [PLAIN, LISTS])
def test_backward_moves_tables_as_the_optimizer_does_in_double_precision(rule, schema, compiled):
    update, optimizer_of = OPTIMIZERS[rule]

    @settings(max_examples=10, deadline=None)
    @given(sizes=st.lists(st.sampled_from([1, 2, 40]), min_size=1, max_size=4), seed=st.integers(0, 999))
    def check(sizes: list[int], seed: int) -> None:
        embed = fused(schema, update, compiled=compiled)
        ordinary = FeatureEmbedding(Sizes(schema), embedding_dim=4).double()
        optimizer = optimizer_of(ordinary.parameters())
        for step, size in enumerate(sizes):
            batch = batch_of(schema, size, seed=seed + step)
            loss_of(embed(batch), step).backward()
            optimizer.zero_grad()
            loss_of(ordinary(batch), step).backward()
            optimizer.step()
        for name, table in ordinary.state_dict().items():
            assert_close(embed.state_dict()[name].double(), table, rtol=0, atol=1e-6)

    check()


@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_l2_is_what_the_same_term_adds_to_the_loss(rule, compiled):
    update, _ = OPTIMIZERS[rule]
    embeds = [fused(PLAIN, replace(update, l2=0.3), compiled=compiled), fused(PLAIN, update)]
    for step in range(3):
        batch = batch_of(PLAIN, 30, seed=step)
        loss_of(embeds[0](batch), step).backward()
        vectors = embeds[1](batch)
        penalty = 0.3 / 2 * torch.stack([one.square().sum() for one in vectors.values()]).sum()
        (loss_of(vectors, step) + penalty).backward()
    for name in ("tables.0.weight", "tables.1.weight", "tables.2.weight"):
        assert_close(embeds[0].state_dict()[name], embeds[1].state_dict()[name], rtol=0, atol=2e-6)


@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_only_rows_that_were_looked_up_move_and_padding_never_does(rule, compiled):
    embed = fused(PLAIN, replace(OPTIMIZERS[rule][0], l2=0.1), compiled=compiled, init_std=1.0)
    embed.lookup("item").storage()[PADDING_INDEX] = 7.0
    before = state_of(embed)
    batch = Batch({"user": torch.tensor([3, 3, 5]), "item": torch.tensor([0, 0, 0]), "slot": torch.tensor([4, 0, 4])})
    vectors = embed(batch)
    assert not vectors["item"].any()
    loss_of(vectors, 0).backward()
    after = embed.state_dict()
    moved = [(after[f"tables.{k}.weight"] != before[f"tables.{k}.weight"]).any(1).nonzero()[:, 0] for k in range(3)]
    assert [rows.tolist() for rows in moved] == [[3, 5], [], [4]]


def test_a_row_without_gradient_keeps_its_adam_state(compiled):
    embed = fused(PLAIN, LazyAdamUpdate(lr=0.1), compiled=compiled)
    batch = batch_of(PLAIN, 5, seed=0)
    loss_of(embed(batch), 0).backward()
    before = state_of(embed)
    (0 * embed.concatenated(batch)).sum().backward()
    after = embed.state_dict()
    assert after.pop("stack.steps").tolist() == [2, 2, 2]
    assert all(torch.equal(one, before[name]) for name, one in after.items())


@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_one_and_two_threads_give_the_same_tables_bit_for_bit(rule):
    results = []
    threads = torch.get_num_threads()
    for count in (1, 2):
        torch.set_num_threads(count)
        try:
            embed = fused(PLAIN, OPTIMIZERS[rule][0], rows=5000)
            for step in range(2):
                loss_of(embed(batch_of(PLAIN, 30_000, seed=step, rows=5000)), step).backward()
        finally:
            torch.set_num_threads(threads)
        results.append(state_of(embed))
    assert all(torch.equal(one, results[1][name]) for name, one in results[0].items())


@pytest.mark.parametrize("together", [True, False])
def test_concatenated_learns_what_forward_learns(together, compiled):
    embed, batch = fused(PLAIN, SGDUpdate(lr=0.1), compiled=compiled), batch_of(PLAIN, 20, seed=1)
    vectors = embed.concatenated(batch) if together else torch.cat(list(embed(batch).values()), 1)
    (vectors * torch.arange(12)).square().sum().backward()
    expected = fused(PLAIN, SGDUpdate(lr=0.1))
    (torch.cat(list(expected(batch).values()), 1) * torch.arange(12)).square().sum().backward()
    assert_close(embed.stack.weights, expected.stack.weights)


def test_width_one_and_gradients_of_any_stride_learn(compiled):
    embed = FusedEmbedding(Sizes(PLAIN), update=SGDUpdate(lr=1.0), embedding_dim=1, init_std=0.0, compiled=compiled)
    batch = Batch({"user": torch.tensor([3, 3]), "item": torch.tensor([5, 6]), "slot": torch.tensor([4, 4])})
    vectors = embed(batch)
    torch.stack(list(vectors.values())).sum().backward()
    assert embed.lookup("user").storage()[3].tolist() == [-2.0]
    embed(batch)["item"].t().flip(1).cumsum(1).sum().backward()
    assert embed.lookup("item").storage()[5:7, 0].tolist() == [-2.0, -3.0]


def test_what_is_no_plain_lookup_has_parameters_and_learns_by_an_optimizer():
    embed, batch = fused(MIXED, SGDUpdate(lr=0.1)), batch_of(MIXED, 9, seed=0)
    assert [name for name, _ in embed.named_parameters()] == ["tables.1.weight", "tables.3.weight", "tables.4.weight"]
    loss_of(embed(batch), 0).backward()
    assert all(one.grad is not None for one in embed.parameters())


@pytest.mark.parametrize("freeze", ["eval", "no_grad", "module", "table"])
def test_frozen_tables_are_read_without_learning(freeze, compiled):
    embed, batch = fused(PLAIN, SGDUpdate(lr=0.1), compiled=compiled), batch_of(PLAIN, 9, seed=0)
    before = state_of(embed)
    if freeze == "eval":
        embed.eval()
    elif freeze == "module":
        embed.requires_grad_(False)
    elif freeze == "table":
        embed.lookup("user").requires_grad_(False)
    with torch.set_grad_enabled(freeze != "no_grad"):
        vectors = embed(batch)
    assert vectors["user"].requires_grad is False
    if freeze == "table":
        loss_of(vectors, 0).backward()
    same = {name: torch.equal(one, before[name]) for name, one in embed.state_dict().items()}
    assert same["tables.0.weight"]
    assert same["tables.1.weight"] == (freeze != "table")


def test_a_shared_table_that_learns_beside_a_frozen_one_is_one_lookup(compiled):
    embed, batch = fused(LISTS, SGDUpdate(lr=0.1), compiled=compiled), batch_of(LISTS, 9, seed=0)
    embed.lookup("user").requires_grad_(False)
    loss_of(embed(batch), 0).backward()
    assert embed.stack.steps == [0, 1, 1, 1]


def test_a_feature_that_the_loss_does_not_reach_stays(compiled):
    embed, batch = fused(PLAIN, LazyAdamUpdate(lr=0.1), compiled=compiled), batch_of(PLAIN, 9, seed=0)
    before = state_of(embed)
    embed(batch)["item"].square().sum().backward()
    same = {name: torch.equal(one, before[name]) for name, one in embed.state_dict().items()}
    assert (same["tables.0.weight"], same["tables.1.weight"], same["tables.2.weight"]) == (True, False, True)
    assert embed.stack.steps == [0, 1, 0]


# --- keeping and growing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_saved_and_loaded_it_goes_on_bit_for_bit(rule):
    embed = fused(LISTS, OPTIMIZERS[rule][0])
    loss_of(embed(batch_of(LISTS, 9, seed=0)), 0).backward()
    other = fused(LISTS, OPTIMIZERS[rule][0], seed=9)
    assert str(other.load_state_dict(state_of(embed))) == "<All keys matched successfully>"
    for one in (embed, other):
        loss_of(one(batch_of(LISTS, 9, seed=1)), 1).backward()
    assert all(torch.equal(one, other.state_dict()[name]) for name, one in embed.state_dict().items())


@pytest.mark.parametrize("assign", [True, False])
def test_state_dicts_are_interchangeable_with_those_of_a_feature_embedding(assign):
    embed, plain = fused(MIXED, LazyAdamUpdate(lr=0.1)), FeatureEmbedding(Sizes(MIXED), embedding_dim=4, seed=7)
    batch = batch_of(MIXED, 9, seed=0)
    loss_of(embed(batch), 0).backward()
    assert str(embed.load_state_dict(plain.state_dict(), assign=assign)) == "<All keys matched successfully>"
    assert all(torch.equal(one, plain(batch)[name]) for name, one in embed(batch).items())
    assert (embed.stack.steps, embed.stack.state["exp_avg"].any()) == ([0, 0], torch.tensor(False))
    loss_of(embed(batch), 0).backward()
    assert str(plain.load_state_dict(state_of(embed), assign=assign)) == "<All keys matched successfully>"
    assert all(torch.equal(one, plain(batch)[name]) for name, one in embed.eval()(batch).items())


def test_tables_are_views_of_one_matrix_also_after_copying_and_converting():
    embed, batch = fused(PLAIN, AdagradUpdate(lr=0.1)), batch_of(PLAIN, 9, seed=0)
    for made in (copy.deepcopy(embed), copy.deepcopy(embed).double(), nn.Sequential(copy.deepcopy(embed)).to("cpu")[0]):
        loss_of(made(batch), 0).backward()
        weights = [table.storage() for table in made.tables]
        assert torch.equal(torch.cat(weights), made.stack.weights)
        assert {one.untyped_storage().data_ptr() for one in weights} == {
            made.stack.weights.untyped_storage().data_ptr()
        }
        assert made.stack.weights.any()
    assert embed.stack.steps == [0, 0, 0]


@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_growing_keeps_rows_and_state_bit_for_bit(rule):
    embed = fused(LISTS, OPTIMIZERS[rule][0])
    loss_of(embed(batch_of(LISTS, 30, seed=0)), 0).backward()
    before = state_of(embed)
    embed.grow(Sizes(LISTS, 20))
    after = embed.state_dict()
    for name, one in before.items():
        assert torch.equal(after[name][: len(one)], one)
    assert [table.num_embeddings for table in embed.tables] == [20] * len(embed.tables)
    start = OPTIMIZERS[rule][0].start
    assert all((one[12:] == start).all() for name, one in after.items() if name.startswith("stack.") and one.ndim)
    loss_of(embed(batch_of(LISTS, 30, seed=1, rows=20)), 1).backward()


def test_new_rows_are_drawn_as_those_of_a_feature_embedding():
    embed, plain = fused(PLAIN, SGDUpdate(lr=0.1)), FeatureEmbedding(Sizes(PLAIN), embedding_dim=4)
    for one in (embed, plain):
        one.grow(Sizes(PLAIN, 20))
    assert all(torch.equal(embed.state_dict()[name], one) for name, one in plain.state_dict().items())


def test_reset_draws_as_at_birth_and_begins_the_state_anew():
    embed = fused(PLAIN, AdagradUpdate(lr=0.1, initial_accumulator_value=0.5))
    before = state_of(embed)
    loss_of(embed(batch_of(PLAIN, 9, seed=0)), 0).backward()
    embed.reset_parameters(init_std=0.01, seed=0)
    assert all(torch.equal(one, before[name]) for name, one in embed.state_dict().items())


def test_a_table_put_in_its_place_is_an_ordinary_one():
    embed, batch = fused(PLAIN, SGDUpdate(lr=0.1)), batch_of(PLAIN, 9, seed=0)
    embed.replace("item", CategoryEmbedding(12, 4, padding_index=0))
    loss_of(embed(batch), 0).backward()
    assert embed.lookup("item").weight.grad.any()


def test_the_plan_is_that_of_a_feature_embedding():
    assert FusedEmbedding.plan(Sizes(MIXED)).equals(FeatureEmbedding.plan(Sizes(MIXED)))


def test_no_memory_of_the_size_of_a_table_is_allocated_in_a_step():
    class Largest(torch.utils._python_dispatch.TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            for one in out if isinstance(out, (list, tuple)) else [out]:
                fresh = isinstance(one, Tensor) and one.untyped_storage().data_ptr() not in known
                Largest.size = max(Largest.size, one.numel() if fresh else 0)
            return out

    def buffers(embed: FusedEmbedding) -> Iterator[int]:
        yield from (one.untyped_storage().data_ptr() for one in embed.buffers())

    for update in (rule for rule, _ in OPTIMIZERS.values()):
        embed = fused(PLAIN, update, rows=10**5)
        known = set(buffers(embed))
        with Largest():
            loss_of(embed(batch_of(PLAIN, 9, seed=0)), 0).backward()
        assert Largest.size <= 9 * 3 * 4


# torch's tracer says this of what stands behind any break of a graph.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_compiled_graphs_step_out_for_lookups_and_learn_the_same():
    embeds = [fused(PLAIN, RowWiseAdagradUpdate(lr=0.1)) for _ in range(2)]
    graph = torch.compile(lambda batch: embeds[0].concatenated(batch).square().sum(), backend="eager")
    for step in range(2):
        batch = batch_of(PLAIN, 9, seed=step)
        graph(batch).backward()
        embeds[1].concatenated(batch).square().sum().backward()
    assert torch.equal(embeds[0].stack.weights, embeds[1].stack.weights)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_cuda_learns_what_the_cpu_learns(rule):
    on_cpu, on_device = (fused(LISTS, OPTIMIZERS[rule][0]) for _ in range(2))
    on_device.cuda()
    for step in range(3):
        batch = batch_of(LISTS, 30, seed=step)
        sum(one.square().sum() for one in on_cpu(batch).values()).backward()
        sum(one.square().sum() for one in on_device(batch.to("cuda")).values()).backward()
    assert_close(on_device.stack.weights.cpu(), on_cpu.stack.weights, rtol=0, atol=1e-5)
