"""Which reserved rows answer requests, and a warning for those that training never reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.reporting.tables import TableRows
from recsys_emb.reporting.text import plain
from recsys_emb.schema.columns import Categorical, Feature, Keyed, MultiCategorical, Position
from recsys_emb.schema.schema import Schema
from recsys_emb.schema.tables import RefuseUnknown


def warnings_of(schema: Schema, encoder: FeatureEncoder, tables: Sequence[TableRows]) -> tuple[str, ...]:
    """Warn of reserved rows that requests read and training never updated, one line per reason."""
    rows = {name: one for one in tables for name in one.names}
    features = [feature for feature in schema.features if feature.name in rows]
    return (*_unknown(schema, features, rows), *_missing(schema, rows), *_position(schema.position, encoder, rows))


def _unknown(schema: Schema, features: Sequence[Feature], rows: Mapping[str, TableRows]) -> Iterator[str]:
    owners = {one.name: one for one in schema.keyed}
    keyed = [one for one in features if isinstance(one, (Categorical, MultiCategorical))]
    idle = [one for one in keyed if not isinstance(one.unknown, RefuseUnknown) and rows[one.name].idle("unknown")]
    names: dict[str, list[str]] = {}
    for one in idle:
        names.setdefault(_remedy(one, owners[one.vocabulary_name]), []).append(one.name)
    for remedy, group in names.items():
        yield (
            f"{_listed(group)}: values that the fit did not know are answered by an unknown row that no training row "
            f"reached; it adds nothing to a score. Let it learn: {remedy}."
        )


def _remedy(feature: Keyed, owner: Keyed) -> str:
    """Say how training would reach the unknown row, beyond what is declared already."""
    count, share = owner.min_count, feature.unknown_dropout
    rarer = "min_count=2" if count == 1 else f"a min_count above {count}"
    return f"{rarer}, or {f'an unknown_dropout above {share:g}' if share else 'unknown_dropout=0.05'}"


def _missing(schema: Schema, rows: Mapping[str, TableRows]) -> Iterator[str]:
    """Strangers have missing features, and a recommendation has a missing context."""
    readers = {
        "users and items that training did not know": (*schema.user_features, *schema.item_features),
        "recommendations, whose context is not known,": schema.context_features,
    }
    for readers_name, features in readers.items():
        names = [one.name for one in features if one.name in rows and rows[one.name].idle("missing")]
        if names:
            yield (
                f"{_listed(names)}: {readers_name} read a missing row that no training row reached; it adds nothing to "
                "a score. Let it learn from rows where the value is missing."
            )


def _position(position: Position | None, encoder: FeatureEncoder, rows: Mapping[str, TableRows]) -> Iterator[str]:
    if position is None or position.name not in rows:
        return
    if position.serve_at is not None and position.serve_at in encoder.seen_positions:
        return
    kind = "missing" if position.serve_at is None else "unknown"
    if rows[position.name].idle(kind):
        yield (
            f"{plain(position.name)}: recommendations are scored at the {kind} row, which no training row reached; it "
            "adds nothing to a score. Declare serve_at= as a position of the training rows."
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(plain, names))
