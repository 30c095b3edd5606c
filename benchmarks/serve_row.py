"""One request at a time: a row → tensors, and a user → the ten best items.

Run:    python benchmarks/serve_row.py [--full | --tiny]
Needs:  nothing more; Cornac, implicit and LightFM take part where they are installed

One thread; the models and vocabularies are in memory.

- **row**: a dict of six raw values → int64 tensors of one row; ours is `transform_row`. scikit-learn is asked as its
  manual shows, by a data frame of one row; pandas by an `Index` for each column. Python dicts are the floor: no checks
  of types, and every spelling of a missing value is another key. All must give the same codes.
- **user**: a raw user → ten raw items that it has not seen, best first. implicit gets our own vectors, with the bias as
  one more column, and must give the same items; it knows numbers only, so dicts translate. Cornac and LightFM have
  models of their own, of the same width; LightFM scores all items, and numpy sorts.
- **pair**: a raw user and a raw item → a prediction.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import factorize_peers as peers
import harness
import logs
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import scipy.sparse as sp
import torch
from harness import Bench, Entry

from recsys_emb.encoding.batch import Batch
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, Schema

NAMES = ("user_id", "item_id", "category", "country", "position", "tag")
ROW = Schema(
    user=Categorical(NAMES[0]), item=Categorical(NAMES[1]), context_features=[Categorical(name) for name in NAMES[2:]]
)
WIDTH, K = 32, 10
Answer = dict[str, int]


class Turns:
    """Gives one request after another, for ever."""

    def __init__(self, requests: list[Any]) -> None:
        self.requests, self.place = requests, -1

    def __call__(self) -> Any:
        """Give the next."""
        self.place = (self.place + 1) % len(self.requests)
        return self.requests[self.place]


# --- a row -------------------------------------------------------------------------------------------------------


def read_rows(rows: int) -> pd.DataFrame:
    table = pq.read_table(logs.log(rows, users=rows // 10, items=rows // 40))
    tags = [one[0] if one else None for one in table["tags"].to_pylist()]
    country = table["country"].cast("string")
    table = table.set_column(table.schema.get_field_index("country"), "country", country)
    frame = table.select(NAMES[:-1]).append_column("tag", [tags]).to_pandas()
    return frame.astype({"position": "Int64"})


class ScikitLearn:
    """`ColumnTransformer` of an `OrdinalEncoder`."""

    def __init__(self, frame: pd.DataFrame) -> None:
        made = harness.needs("sklearn.preprocessing").OrdinalEncoder
        encoder = made(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-1)
        transformer = harness.needs("sklearn.compose").ColumnTransformer
        self.encoder = transformer([("codes", encoder, list(NAMES))]).fit(self._plain(frame))

    def __call__(self, row: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Encode a row."""
        codes = self.encoder.transform(pd.DataFrame([row], dtype=object))
        return {name: torch.tensor([int(code)]) for name, code in zip(NAMES, codes[0], strict=True)}

    def decode(self, codes: Answer) -> dict[str, Any]:
        """Give the values of codes."""
        categories = self.encoder.named_transformers_["codes"].categories_
        pairs = zip(NAMES, categories, strict=True)
        return {name: None if codes[name] < 0 else values[codes[name]] for name, values in pairs}

    @staticmethod
    def _plain(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.astype(object).where(frame.notna(), None)


class PandasIndex:
    """An `Index` for each column."""

    def __init__(self, encoder: FeatureEncoder) -> None:
        self.known = {name: pd.Index(encoder.vocabularies[name].values.to_pandas()) for name in NAMES}

    def __call__(self, row: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Encode a row."""
        return {name: torch.from_numpy(index.get_indexer([row[name]]) + 3) for name, index in self.known.items()}


class PythonDicts:
    """A dict for each column."""

    def __init__(self, encoder: FeatureEncoder) -> None:
        self.known = {
            name: {value: code + 3 for code, value in enumerate(vocabulary.values.to_pylist())}
            for name, vocabulary in encoder.vocabularies.items()
        }

    def __call__(self, row: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Encode a row."""
        return {name: torch.tensor([known.get(row[name], 2)]) for name, known in self.known.items()}


def on_rows(bench: Bench) -> None:
    frame = read_rows(bench.size(20_000, 500_000, 5_000_000))
    encoder = FeatureEncoder(ROW).fit(frame)
    whole = frame.dropna().iloc[:: max(len(frame) // 300, 1)]
    requests = [{name: _plain(row[name]) for name in NAMES} for row in whole.to_dict("records")]

    def ours(row: dict[str, Any]) -> Batch:
        return encoder.transform_row(row)

    sklearn = ScikitLearn(frame)
    for row in requests[:20]:
        mine = {name: int(codes) for name, codes in ours(row).columns.items()}
        assert {name: encoder.vocabularies[name].decode([code])[0] for name, code in mine.items()} == row
        for peer in (PandasIndex(encoder), PythonDicts(encoder)):
            assert {name: int(code) for name, code in peer(row).items()} == mine, "other codes"
        assert sklearn.decode({name: int(code) for name, code in sklearn(row).items()}) == row, "other codes"
    bench.race(
        "row",
        f"a dict of 6 values → tensors, vocabularies of {len(frame):,} rows",
        Entry("recsys_emb", lambda: _asking(ours, requests)),
        Entry("scikit-learn ColumnTransformer", lambda: _asking(sklearn, requests), "scikit-learn", goal=20),
        Entry("pandas Index", lambda: _asking(PandasIndex(encoder), requests), "pandas"),
        Entry("Python dicts", lambda: _asking(PythonDicts(encoder), requests)),
    )


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _asking(answer: Callable[[Any], Any], requests: list[Any]) -> harness.Work:
    turns = Turns(requests)
    return lambda: answer(turns())


# --- a user ------------------------------------------------------------------------------------------------------


class Implicit:
    """`recommend` of implicit, with our vectors."""

    def __init__(self, ours: Recommender, frame: pd.DataFrame) -> None:
        model, values = ours.model, ours.encoder.vocabularies
        users, items = (model.vectors.lookup(name).table().detach()[3:].numpy() for name in ("user", "item"))
        biases = model.biases.lookup("item").table().detach()[3:].numpy()
        self.model = harness.needs("implicit.cpu.als").AlternatingLeastSquares(factors=WIDTH + 1)
        self.model.user_factors = np.concatenate([users, np.ones_like(users[:, :1])], axis=1)
        self.model.item_factors = np.concatenate([items, biases], axis=1)
        self.user_rows = {value: row for row, value in enumerate(values["user"].values.to_pylist())}
        self.items = values["item"].values.to_pylist()
        places = (values[name].encode(frame[name]).numpy() - 3 for name in ("user", "item"))
        data = (np.ones(len(frame), np.float32), tuple(places))
        self.seen = sp.csr_matrix(data, shape=(len(users), len(items)))

    def __call__(self, user: int) -> list[int]:
        """Recommend to a user."""
        row = self.user_rows[user]
        return [self.items[one] for one in self.model.recommend(row, self.seen[row], N=K)[0]]


class Cornac:
    """`recommend` of Cornac's MF, which takes raw values."""

    def __init__(self, log: peers.Log) -> None:
        trained = peers.Cornac(log, peers.Settings(WIDTH))
        self.rows, self.model = trained.rows, trained.fit(1)

    def __call__(self, user: int) -> list[int]:
        """Recommend to a user."""
        return list(self.model.recommend(user, k=K, remove_seen=True, train_set=self.rows))

    def score(self, pair: tuple[int, int]) -> float:
        """Predict a rating."""
        return float(self.model.rate(self.rows.uid_map[pair[0]], self.rows.iid_map[pair[1]]))


class LightFM:
    """`predict` for all items, and numpy."""

    def __init__(self, log: peers.Log) -> None:
        identities = (sp.identity(log.num_users, np.float32, "csr"), sp.identity(log.num_items, np.float32, "csr"))
        self.model = peers.LightFM(log, peers.Settings(WIDTH), "logistic", identities).model
        self.seen = sp.csr_matrix((np.ones(len(log.users)), (log.users, log.items)), (log.num_users, log.num_items))
        self.items = np.arange(log.num_items)

    def __call__(self, user: int) -> list[int]:
        """Recommend to a user."""
        scores = self.model.predict(user, self.items, num_threads=1)
        scores[self.seen[user].indices] = -np.inf
        best = np.argpartition(-scores, K)[:K]
        return best[np.argsort(-scores[best])].tolist()


def on_users(bench: Bench) -> None:
    rows = bench.size(20_000, 500_000, 5_000_000)
    users, items = rows // 20, rows // 25
    log = peers.Log(*logs.ratings(rows, users=users, items=items), users, items)
    frame = log.frame()
    ours = Recommender(Schema(**_declared(), embedding_dim=WIDTH), epochs=3, progress=False).fit(frame)
    asked = frame["user"].drop_duplicates().iloc[:300].tolist()
    about = f"one user → 10 of {items:,} items, width {WIDTH}"
    bench.race(
        "user",
        about,
        Entry("recsys_emb Recommender", lambda: _asking(lambda user: ours.recommend([user], K), asked)),
        Entry(
            "implicit recommend",
            lambda: _asking(Implicit(ours, frame), asked),
            "implicit",
            agrees=_same_items,
        ),
        Entry("Cornac MF recommend", lambda: _asking(Cornac(log), asked), "cornac"),
        Entry("LightFM predict, argpartition", lambda: _asking(LightFM(log), asked), "lightfm-next"),
    )
    pairs = list(zip(frame["user"][:300].tolist(), frame["item"][:300].tolist(), strict=True))
    bench.race(
        "pair",
        "one user and one item → a prediction",
        Entry("recsys_emb Recommender", lambda: _asking(partial(_predict, ours), pairs)),
        Entry("Cornac MF rate", lambda: _asking(Cornac(log).score, pairs), "cornac"),
    )


def _declared() -> dict[str, Any]:
    return {"user": Categorical("user"), "item": Categorical("item"), "label": "label"}


def _predict(ours: Recommender, pair: tuple[int, int]) -> float:
    return float(ours.predict({"user": [pair[0]], "item": [pair[1]]}).iloc[0])


def _same_items(ours: pd.DataFrame, theirs: list[int]) -> None:
    assert ours["item"].tolist() == theirs, "other items, or another order"


if __name__ == "__main__":
    bench = Bench("serve_row", __doc__)
    on_rows(bench)
    on_users(bench)
