"""What learning in backward cannot do is refused in words that name the remedy."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from recsys_emb.encoding.batch import Batch
from recsys_emb.errors import DataError, FitError, SchemaError
from recsys_emb.lookup.fused_embedding import FusedEmbedding
from recsys_emb.lookup.row_rules import AdagradUpdate, LazyAdamUpdate, RowWiseAdagradUpdate, SGDUpdate
from recsys_emb.schema.columns import Categorical
from recsys_emb.schema.schema import Schema

SCHEMA = Schema(user=Categorical("user"), item=Categorical("item"), embedding_dim=2)
BATCH = Batch({"user": torch.tensor([3, 4]), "item": torch.tensor([5, 5])})
ANOTHER_BACKWARD = (
    "FusedEmbedding: expected one backward per lookup of a table, got another one that has moved its rows since. Each "
    "backward is a step: look a table up once per step, in one call, and go backward once; to add gradients up, use "
    "FeatureEmbedding with RowWiseAdagrad or LazyAdam."
)


def embedding() -> FusedEmbedding:
    return FusedEmbedding(SimpleNamespace(schema=SCHEMA, num_embeddings=lambda _: 9), update=SGDUpdate(lr=0.1))


def test_going_backward_twice_through_one_graph():
    loss = embedding()(BATCH)["user"].sum()
    loss.backward(retain_graph=True)
    with pytest.raises(FitError) as caught:
        loss.backward()
    assert str(caught.value) == ANOTHER_BACKWARD


def test_a_table_looked_up_twice_in_one_graph():
    embed = embedding()
    loss = embed(BATCH)["user"].sum() + embed(BATCH)["user"].sum()
    with pytest.raises(FitError) as caught:
        loss.backward()
    assert str(caught.value) == ANOTHER_BACKWARD


def test_two_tables_looked_up_apart_are_one_step_each():
    embed = embedding()
    (embed.vectors_of("user", BATCH).sum() + embed.vectors_of("item", BATCH).sum()).backward()
    assert embed.stack.steps == [1, 1]


def test_a_lookup_that_is_never_gone_back_through_hinders_nobody():
    embed = embedding()
    kept = embed(BATCH)
    embed(BATCH)["user"].sum().backward()
    assert kept["user"].requires_grad
    assert embed.stack.steps == [1, 0]


def test_a_second_derivative():
    vectors = embedding()(BATCH)["user"]
    with pytest.raises(FitError) as caught:
        vectors.square().sum().backward(create_graph=True)
    assert str(caught.value) == (
        "FusedEmbedding: expected a first derivative, got create_graph=True. Its tables move in backward and have no "
        "gradient to differentiate; use FeatureEmbedding with RowWiseAdagrad or LazyAdam."
    )


def test_gradients_scaled_for_float16():
    with torch.autocast("cpu", dtype=torch.float16), pytest.raises(FitError) as caught:
        embedding()(BATCH)
    assert str(caught.value) == (
        "FusedEmbedding: expected gradients of the loss itself, got float16 autocast, whose GradScaler multiplies "
        "them. Autocast to bfloat16, which needs no scaler, or use FeatureEmbedding with RowWiseAdagrad or LazyAdam."
    )


def test_bfloat16_autocast_learns_in_float32():
    embed, head = embedding(), nn.Linear(4, 1)
    before = embed.stack.weights.clone()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = head(embed.concatenated(BATCH)).sum()
    loss.backward()
    assert (embed.stack.weights != before).any(1).nonzero()[:, 0].tolist() == [3, 4, 9 + 5]


def test_processes_that_would_drift_apart(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(_Scores())
        with pytest.raises(FitError) as caught:
            model(BATCH)
    finally:
        torch.distributed.destroy_process_group()
    assert str(caught.value) == (
        "FusedEmbedding: expected to learn in one process, got torch.distributed. Its tables move in the backward of "
        "each process and would drift apart; under DistributedDataParallel, use FeatureEmbedding with RowWiseAdagrad "
        "or LazyAdam."
    )


class _Scores(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = embedding(), nn.Linear(4, 1)

    def forward(self, batch: Batch) -> torch.Tensor:
        return self.head(self.embed.concatenated(batch))


def test_an_optimizer_finds_no_table_to_move():
    model = _Scores()
    assert [name for name, _ in model.named_parameters()] == ["head.weight", "head.bias"]
    with pytest.raises(ValueError, match="optimizer got an empty parameter list"):
        torch.optim.Adam(model.embed.parameters())


def test_indices_on_another_device_than_the_tables():
    columns = {name: torch.zeros(2, dtype=torch.int64, device="meta") for name in ("user", "item")}
    with pytest.raises(DataError) as caught:
        embedding()(Batch(columns, limits={"user": 9, "item": 9}))
    assert str(caught.value) == (
        "FusedEmbedding: expected indices on the CPU, where its tables are, got meta. Move the batch or the module "
        "with to(device)."
    )


def test_a_whole_table_where_gradients_are_recorded():
    table = embedding().lookup("item")
    with pytest.raises(FitError) as caught:
        table.table()
    assert str(caught.value) == (
        "feature 'item': expected lookups of rows, got the whole table where gradients are recorded. Tie output "
        "weights to a FeatureEmbedding, or read the table under torch.no_grad()."
    )
    with torch.no_grad():
        assert torch.equal(table.table(), table.storage())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGDUpdate(lr=0.0), "SGDUpdate: expected lr above 0, got 0.0. 0.01 is a usual one."),
        (
            lambda: SGDUpdate(lr=float("nan")),
            "SGDUpdate: expected lr above 0, got nan. 0.01 is a usual one.",
        ),
        (lambda: SGDUpdate(lr="x"), "SGDUpdate: expected lr above 0, got 'x'. 0.01 is a usual one."),
        (lambda: SGDUpdate(lr=True), "SGDUpdate: expected lr above 0, got True. 0.01 is a usual one."),
        (
            lambda: LazyAdamUpdate(lr=1, betas=(None, 0.9)),
            "LazyAdamUpdate: expected betas in [0, 1), got None. They are shares that are kept.",
        ),
        (lambda: SGDUpdate(lr=1, l2=-1), "SGDUpdate: expected l2 of at least 0, got -1. 0 turns it off."),
        (
            lambda: AdagradUpdate(lr=1, eps=0),
            "AdagradUpdate: expected eps above 0, got 0. It divides where there is no history.",
        ),
        (
            lambda: RowWiseAdagradUpdate(lr=1, initial_accumulator_value=-1),
            "RowWiseAdagradUpdate: expected initial_accumulator_value of at least 0, got -1. It is a sum of squares.",
        ),
        (
            lambda: LazyAdamUpdate(lr=1, betas=(0.9, 1.0)),
            "LazyAdamUpdate: expected betas in [0, 1), got 1.0. They are shares that are kept.",
        ),
    ],
)
def test_settings_that_cannot_train(make, message):
    with pytest.raises(FitError) as caught:
        make()
    assert str(caught.value) == message


def test_tables_of_several_widths_in_one_matrix():
    schema = Schema(context_features=[Categorical("colour"), Categorical("size")])
    sizes = SimpleNamespace(schema=schema, num_embeddings=lambda name: 1_003 if name == "colour" else 13)
    with pytest.raises(SchemaError) as caught:
        FusedEmbedding(sizes, update=SGDUpdate(lr=0.1), embedding_dim="auto")
    assert str(caught.value) == (
        "FusedEmbedding: expected one width, got 6, 77. Give one embedding_dim, or read embedding_dims."
    )
