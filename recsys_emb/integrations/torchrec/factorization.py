"""`ShardedFactorization`: a `MatrixFactorization` whose tables are spread over processes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, distributed, nn
from torch.func import functional_call

from recsys_emb.encoding.batch import Batch, Column, Jagged
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import SchemaError
from recsys_emb.integrations.torchrec.agreement import Ranks, agree_on_model
from recsys_emb.integrations.torchrec.birth import begin
from recsys_emb.integrations.torchrec.door import torchrec
from recsys_emb.integrations.torchrec.layout import PARTS, lay_out
from recsys_emb.integrations.torchrec.placement import ByFeature, RowWise, check_placement
from recsys_emb.integrations.torchrec.rules import check_rule
from recsys_emb.integrations.torchrec.tables import ShardedTables
from recsys_emb.lookup.lineage import check_weights
from recsys_emb.lookup.row_rules import RowRule
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema.columns import Numeric
from recsys_emb.training.rows import check_ranges
from recsys_emb.vocabulary.reserved import MISSING_INDEX, PADDING_INDEX

T = TypeVar("T")


class ShardedFactorization(nn.Module):
    """The scores of a `MatrixFactorization`, whose tables are spread over the processes of a group by TorchRec.

    A batch's distinct rows are fetched from where they stand, in one exchange for all vectors and one for all biases;
    scoring is then that of a `MatrixFactorization` of just these rows. Going backward sends gradients back, and rows
    move where they stand: **each backward is a step**. Gradients are averaged over processes, so losses belong into
    `recsys_emb.training.ranks.mean_over_ranks`.

    Every process makes it, and calls its methods, together with all others and in the same order. Rows are spread so
    that frequent values do not all stand on one process (see `Spread`).

    Parameters
    ----------
    encoder
        Fitted; the same on every process. Tables are those of kind `Lookup`, numbers and positions.
    update
        How rows move: `SGDUpdate`, `AdagradUpdate` or `RowWiseAdagradUpdate`, without ``l2``.
    placement
        `RowWise`, `TableWise` or `ColumnWise`, for all tables or by the name of a feature that reads the table.
    embedding_dim, init_std, seed
        As for `MatrixFactorization`, whose first numbers these are, whatever the number of processes.
    group
        The processes; all of them unless given. Its backend carries the tensors: gloo on the CPU, nccl on CUDA.
    device
        Where this process holds its part, and where batches are.
    timeout
        How long a process waits for the others when they agree on what they do, before it raises.

    Attributes
    ----------
    vectors, biases : ShardedTables
    offset, scale : torch.Tensor
        As of a `MatrixFactorization`; the same on every process.

    Raises
    ------
    MissingDependencyError
        When TorchRec is not installed; the message says how to install it.
    SchemaError
        When a feature has a table that cannot be spread, or a placement cannot give the numbers of one process.
    FitError
        When there is no process group, the rule has no counterpart, or processes disagree on the schema, the encoder
        or these settings. All of them raise, before any row is sent.
    """

    offset: Tensor
    scale: Tensor

    def __init__(
        self,
        encoder: FeatureEncoder,
        *,
        update: RowRule,
        placement: ByFeature = RowWise(),
        embedding_dim: int | None = None,
        init_std: float = 0.01,
        seed: int = 0,
        group: distributed.ProcessGroup | None = None,
        device: torch.device | str = "cpu",
        timeout: timedelta = timedelta(minutes=5),
    ) -> None:
        super().__init__()
        torchrec()
        check_rule(update)
        birth = {"embedding_dim": embedding_dim, "init_std": init_std, "seed": seed}
        with torch.device("meta"):
            plain = MatrixFactorization(encoder, **cast("Any", birth))
        check_placement(placement, plain.biases.names, update)
        self.update, self.ranks = update, Ranks(group, timeout=timeout)
        agree_on_model(self.ranks, encoder, {"update": update, "placement": placement, **birth})
        self.encoder, self.device = encoder, torch.device(device)
        self._plain = (plain,)  # not a module of this one: it has no memory
        self._layout = lay_out(plain, placement, self.ranks.size)
        self.vectors, self.biases = (
            ShardedTables(
                self._layout.tables[part],
                getattr(plain, part).embedding_dim,
                update=update,
                group=self.ranks.group,
                device=self.device,
            )
            for part in PARTS
        )
        self.register_buffer("offset", torch.zeros((), device=self.device))
        self.register_buffer("scale", torch.ones((), device=self.device))
        begin(self.vectors, init_std=init_std, seed=seed)
        begin(self.biases, init_std=0.0, seed=seed)

    @property
    def plain(self) -> MatrixFactorization:
        """The model that this one is, on the meta device: everything but its numbers."""
        return self._plain[0]

    def forward(self, batch: Batch) -> Tensor:
        """Score in units of the label: ``(B,)``, on each process for the rows of its own, of which it may have none."""
        return self.asked(batch, MatrixFactorization.forward)

    def raw(self, batch: Batch) -> Tensor:
        """Score in standard units, in which solvers learn: ``(B,)``."""
        return self.asked(batch, MatrixFactorization.raw)

    def asked(self, batch: Batch, question: Callable[[MatrixFactorization, Batch], T]) -> T:
        """Ask something of a `MatrixFactorization` that knows the rows of this batch, and of the batch in its indices.

        Raises
        ------
        IndexRangeError
            When an index lies outside its table. Only this process raises: the others wait until their timeout.
        """
        wanted, rows = self._wanted(batch)
        weights = {
            **self.vectors.fetch(wanted),
            **self.biases.fetch(wanted),
            "offset": self.offset,
            "scale": self.scale,
        }
        named = {f"model.{key}": tensor for key, tensor in weights.items()}
        answer: T = functional_call(_Asked(self.plain, question), named, (rows,))
        return answer

    def set_units(self, offset: float, scale: float) -> None:
        """State the label's units, on every process the same: scores are ``offset + scale * raw``."""
        self.offset.fill_(offset)
        self.scale.fill_(scale)

    def gathered(self, *, to: int = 0) -> MatrixFactorization | None:
        """Bring all rows together into an ordinary model on the CPU of process ``to``; None on the others.

        That process needs memory for the whole model, and for one table twice. Where no machine has it, save a
        checkpoint and read the tables from there.
        """
        weights = {**self.vectors.gathered(to=to), **self.biases.gathered(to=to)}
        return None if self.ranks.rank != to else filled(self.plain, weights, float(self.offset), float(self.scale))

    @torch.no_grad()
    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Take over the weights of a `MatrixFactorization`, of which each process reads the rows that it holds.

        Parameters
        ----------
        weights
            Its ``state_dict()``, on every process: mapped into memory, no process reads all of it.

        Raises
        ------
        LineageError
            When they are weights of other vocabularies.
        SchemaError
            When a table is missing, or of another shape.
        """
        for part in PARTS:
            check_weights(getattr(self.plain, part).meanings, weights.get(f"{part}.fingerprint"))
        expected = {key: tuple(tensor.shape) for key, tensor in self.plain.named_parameters()}
        for key, shape in expected.items():
            got = tuple(weights[key].shape) if key in weights else "none"
            if got != shape:
                raise SchemaError(
                    f"ShardedFactorization.load: expected {key!r} of shape {shape}, got {got}. "
                    "Give the state_dict() of a model made with the same encoder and embedding_dim."
                )
        for tables in (self.vectors, self.biases):
            for shard in tables.shards():
                columns = slice(shard.columns.start, min(shard.columns.stop, tables.width))
                found = weights[shard.table.weight][:, columns][shard.indices]
                shard.values[:, : found.shape[1]] = found.to(shard.values)
        self.set_units(float(weights["offset"]), float(weights["scale"]))

    def _wanted(self, batch: Batch) -> tuple[dict[str, Tensor], Batch]:
        """Give the distinct indices of a batch, by owner, and the batch in places among them.

        Padding and missing come first, so that they mean in places what they mean in indices.
        """
        check_ranges(batch, self.plain.biases)
        first = torch.tensor([PADDING_INDEX, MISSING_INDEX], device=self.device)
        wanted: dict[str, Tensor] = {}
        columns: dict[str, Column] = {}
        for owner, names in self._layout.readers.items():
            if isinstance(self.plain.schema[owner], Numeric):
                wanted[owner], columns[owner] = first, batch[owner]
                continue
            read = [batch[name] for name in names]
            indices = [one.values if isinstance(one, Jagged) else one for one in read]
            wanted[owner], places = torch.unique(torch.cat([first, *indices]).long(), return_inverse=True)
            parts = places[len(first) :].split([len(one) for one in indices])
            for name, one, part in zip(names, read, parts, strict=True):
                columns[name] = Jagged(part, one.offsets, one.weights) if isinstance(one, Jagged) else part
        checked = dict.fromkeys(columns, 1)
        return wanted, Batch(columns, batch.label, batch.weight, checked)


class _Asked(nn.Module):
    """A question as a module, which is what `functional_call` asks."""

    def __init__(self, model: MatrixFactorization, question: Callable[[MatrixFactorization, Batch], Any]) -> None:
        super().__init__()
        self.model = model
        self._question = question

    def forward(self, batch: Batch) -> Any:
        return self._question(self.model, batch)


def filled(
    plain: MatrixFactorization, weights: Mapping[str, Tensor], offset: float, scale: float
) -> MatrixFactorization:
    """Copy a model without memory, and give it the rows of its tables."""
    plain = copy.deepcopy(plain)
    units = {"offset": torch.tensor(offset), "scale": torch.tensor(scale)}
    plain.load_state_dict({**plain.state_dict(), **weights, **units}, assign=True)
    return plain
