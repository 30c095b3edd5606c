"""One model on four kinds of table: lookup, one-hot × matrix, hashed, quotient-remainder.

Run:    python examples/one_hot_baseline.py
Needs:  nothing that is not in the repository; some seconds.
Prints: RMSE on held-out planted ratings, parameters, bytes of the weights, bytes of the one-hot matrices of a batch,
        and seconds of training. A lookup and a one-hot projection are the same model, and learn the same weights but
        for rounding; the others trade rows for error. The noise in the ratings has a standard deviation of 0.3.
"""

from __future__ import annotations

import time

import pandas as pd
import torch
from data_folder import load_script

from recsys_emb import (
    Categorical,
    FeatureEncoder,
    Hashed,
    Lookup,
    MatrixFactorization,
    Minibatch,
    OneHot,
    Position,
    QuotientRemainder,
    Schema,
    SquaredError,
    split_random,
)
from recsys_emb.training.fitting import train

TABLES = {
    "lookup": Lookup(),
    "one-hot": OneHot(),
    "hashed": Hashed(250),
    "quotient-remainder": QuotientRemainder(30),
}
BATCH = 512
# Any optimizer would do that takes the dense gradients of all four.
SOLVER = Minibatch(optimizer=torch.optim.Adam, learning_rate=0.01, batch_size=BATCH, l2=0.01, bias_l2=0.01)


def learned(table: object, past: pd.DataFrame, future: pd.DataFrame) -> tuple[dict[str, float], torch.Tensor]:
    """Train a factorization on this kind of table; give its figures and its held-out predictions."""
    user, item = (Categorical(name, table=table) for name in ("user_id", "item_id"))
    schema = Schema(user=user, item=item, position=Position("slot", max_position=5), label="rating", embedding_dim=8)
    encoder = FeatureEncoder(schema).fit(past)
    batch, held_out = encoder.transform(past), encoder.transform(future)
    model = MatrixFactorization(encoder)
    started = time.perf_counter()
    train(model, batch, SquaredError(), SOLVER, epochs=12, progress=False)
    seconds = time.perf_counter() - started
    with torch.no_grad():
        predicted = model(held_out)
    parameters = list(model.parameters())
    sizes = [encoder.num_embeddings(one.name) for one in (user, item)] if table == OneHot() else []
    return {
        "RMSE": (predicted - held_out.label).square().mean().sqrt().item(),
        "parameters": sum(one.numel() for one in parameters),
        "weight bytes": sum(one.nbytes for one in parameters),
        "one-hot bytes": 2 * sum(4 * BATCH * size for size in sizes),  # for vectors and for biases
        "seconds": seconds,
    }, predicted


def main() -> dict[str, dict[str, float]]:
    """Print and return the figures by kind of table, and how far lookup and one-hot differ."""
    rows = load_script("planted/generate.py").generate(rows=30_000, users=1000, items=300, seed=0).interactions
    past, future = split_random(rows, 0.2, seed=0)
    found = {name: learned(table, past, future) for name, table in TABLES.items()}
    figures = {name: figure for name, (figure, _) in found.items()}
    shown = {"RMSE": "{:.4f}", "seconds": "{:.1f}"}
    table = pd.DataFrame(figures).T
    print(table.to_string(formatters={name: shown.get(name, "{:,.0f}").format for name in table}))
    gap = (found["lookup"][1] - found["one-hot"][1]).abs().max().item()
    print(f"\nPredictions of lookup and one-hot differ by at most {gap:.1e}.")
    print(f"RMSE of the mean rating: {(future['rating'] - past['rating'].mean()).pow(2).mean() ** 0.5:.4f}")
    return {**figures, "difference": {"lookup, one-hot": gap}}


if __name__ == "__main__":
    main()
