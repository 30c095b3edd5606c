"""`infer_schema`: a first proposal, from the names, types and cardinalities of the columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from recsys_emb.encoding.naming import (
    IDS,
    ITEMS,
    LABELS,
    POSITIONS,
    SHORT_PAIRS,
    TIMES,
    USERS,
    identifies,
    numbers_rows,
    words_of,
)
from recsys_emb.encoding.survey import ColumnFacts, survey
from recsys_emb.errors import DataError, counted
from recsys_emb.schema import Categorical, Feature, MultiCategorical, Numeric, Position, Schema

_LARGEST_POSITION = 10_000
# Integers of more values than this are taken as amounts, of fewer as categories.
_FEW = 12
# A text column with this share of as many values as there are items is another name of the item.
_NEARLY_ALL = 0.9


def infer_schema(source: Any, *, max_rows: int = 1_000_000, show: Callable[[str], object] = print) -> Schema:
    """Propose a schema, and show what the proposal is based on.

    Names tell the user, the item, the position and the label; types and cardinalities tell the kinds. A column
    with one value per user is a feature of the user, one with one value per item of the item, any other one is
    context. Left out are times, constants, further labels and positions, what names users, items and rows once more,
    and what cannot be encoded. Read the table, then edit the schema: of lists it counts the elements.

    Parameters
    ----------
    source
        Anything that `open_source` takes.
    max_rows
        Look at the first this many rows.
    show
        What to do with the table.

    Raises
    ------
    DataError
        When there are no rows, or no column that could be a feature.

    Examples
    --------
    >>> frame = pd.DataFrame(
    ...     {
    ...         "user_id": [1, 1, 2, 2],
    ...         "movie_id": ["a", "b", "a", "b"],
    ...         "genres": [["war"], ["war", "drama"], ["war"], ["war", "drama"]],
    ...         "rating": [4.0, 3.0, 5.0, 1.0],
    ...         "timestamp": [1700000000, 1700000001, 1700000002, 1700000003],
    ...     }
    ... )
    >>> schema = infer_schema(frame)
    Based on 4 rows:
       column         type             kind         role  distinct  missing                     reason
      user_id        int64      Categorical         user         2        0    its name means the user
     movie_id         text      Categorical         item         2        0    its name means the item
       genres list of text MultiCategorical item feature         2        0         one value per item
       rating       double                         label         4        0 its name means the outcome
    timestamp        int64                      left out         4        0      times are not encoded
    >>> schema.names, schema.label
    (('user_id', 'movie_id', 'genres'), 'rating')
    """
    columns = survey(source, max_rows)
    num_rows = max((facts.num_rows for facts in columns), default=0)
    if not num_rows:
        raise DataError("Schema.infer: expected at least one row, got none. Check the source.")
    picks = _Picks.of([facts for facts in columns if _why_useless(facts) is None])
    guesses = [_guess(facts, picks) for facts in columns]
    show(f"Based on {counted(num_rows, 'row')}:\n{_table(guesses)}")
    if not any(guess.feature for guess in guesses):
        raise DataError("Schema.infer: expected a column that could be a feature, got none. Write the schema by hand.")
    return _schema(guesses)


@dataclass(frozen=True)
class _Guess:
    """What a column could be, and why."""

    facts: ColumnFacts
    role: str
    reason: str
    feature: Feature | None = None


@dataclass(frozen=True)
class _Picks:
    """The columns with a role of their own."""

    user: ColumnFacts | None
    item: ColumnFacts | None
    position: ColumnFacts | None
    label: ColumnFacts | None

    @classmethod
    def of(cls, columns: Sequence[ColumnFacts]) -> _Picks:
        """Pick the best column for each role, the first of equals."""
        user = _best(columns, lambda facts: _identifies(facts, USERS))
        item = _best(columns, lambda facts: _identifies(facts, ITEMS))
        if user is None and item is None:
            user, item = _short_pair(columns)
        return cls(user, item, _best(columns, _is_position), _best(columns, _is_label))

    def guess(self, facts: ColumnFacts) -> _Guess | None:
        """Guess about a column that was picked."""
        if facts is self.user or facts is self.item:
            role = "user" if facts is self.user else "item"
            return _Guess(facts, role, f"its name means the {role}", Categorical(facts.name))
        if facts is self.position:
            largest = pc.max(facts.values).as_py()
            feature = Position(facts.name, max_position=largest)
            return _Guess(facts, "position", f"its name means a place, up to {largest}; serve_at is None", feature)
        return _Guess(facts, "label", "its name means the outcome") if facts is self.label else None


def _short_pair(columns: Sequence[ColumnFacts]) -> tuple[ColumnFacts | None, ColumnFacts | None]:
    by_name = {facts.name.lower(): facts for facts in columns if not facts.is_list}
    pairs = [pair for pair in SHORT_PAIRS if all(name in by_name for name in pair)]
    return (by_name[pairs[0][0]], by_name[pairs[0][1]]) if pairs else (None, None)


def _best(columns: Sequence[ColumnFacts], score: Callable[[ColumnFacts], float]) -> ColumnFacts | None:
    best = max(columns, key=score, default=None)
    return best if best is not None and score(best) else None


def _guess(facts: ColumnFacts, picks: _Picks) -> _Guess:
    useless = _why_useless(facts)
    if useless is not None:
        return _Guess(facts, "left out", useless)
    further = "outcome" if _is_label(facts) else "place" if _is_position(facts) else None
    picked = picks.guess(facts)
    if picked is None and further is not None:
        return _Guess(facts, "left out", f"its name means another {further}")
    return picked or _guess_feature(facts, picks)


def _guess_feature(facts: ColumnFacts, picks: _Picks) -> _Guess:
    sides = (("user", picks.user, picks.item, USERS), ("item", picks.item, picks.user, ITEMS))
    for role, owner, other, _ in sides:
        # Where every row has an owner of its own, they decide everything: that says something only in a table of them.
        if owner is None or not owner.decides(facts) or (other is not None and owner.distinct == facts.num_rows):
            continue
        if _is_name(facts) and facts.distinct >= _NEARLY_ALL * owner.distinct:
            return _Guess(facts, "left out", f"it names each {role} once more")
        return _Guess(facts, f"{role} feature", f"one value per {role}", _feature(facts, picks))
    for role, _, _, words in sides:
        if words_of(facts.name)[0] in words:
            return _Guess(facts, f"{role} feature", f"its name says {role}", _feature(facts, picks))
    if (_is_free_text(facts) or _is_serial(facts)) and (picks.user or picks.item):
        return _Guess(facts, "left out", "nearly every row has its own")
    return _Guess(facts, "context", "neither user nor item decides it", _feature(facts, picks))


def _feature(facts: ColumnFacts, picks: _Picks) -> Feature:
    if not facts.is_list:
        return Categorical(facts.name) if _is_keyed(facts) else Numeric(facts.name)
    holds_items = picks.item is not None and facts.holds_only_values_of(picks.item)
    return MultiCategorical(facts.name, vocabulary=picks.item.name if picks.item and holds_items else None)


# --- what a column can be ----------------------------------------------------------------------------------------


def _why_useless(facts: ColumnFacts) -> str | None:
    if not facts.name or numbers_rows(facts.name):
        return "it numbers the rows" if facts.name else "it has no name"
    if facts.holds_dates or (facts.is_number and words_of(facts.name)[-1] in TIMES):
        return "times are not encoded"
    if facts.codes is None or (facts.is_list and pa.types.is_floating(facts.type.value_type)):
        return "it does not hold keys"
    if not facts.distinct:
        return "it has no values"
    if facts.is_constant:
        return "every row has the same values" if facts.distinct > 1 else "it has one value only"
    return None


def _identifies(facts: ColumnFacts, kind: frozenset[str]) -> float:
    """How surely a column identifies a user (an item): by its name, and of equals the one with most values."""
    surely = 0 if facts.is_list or pa.types.is_boolean(facts.type) else identifies(facts.name, kind)
    return surely and surely + facts.distinct / (facts.num_rows + 1)


def _is_position(facts: ColumnFacts) -> float:
    words = words_of(facts.name)
    if not pa.types.is_integer(facts.type) or POSITIONS.isdisjoint(words):
        return 0
    least, most = pc.min_max(facts.values).as_py().values()
    return 1 / len(words) if least >= 0 and most <= _LARGEST_POSITION else 0


def _is_label(facts: ColumnFacts) -> float:
    """Shorter names mean the outcome more surely: "rating" before "food_rating"."""
    words = words_of(facts.name)
    is_amount = facts.is_number or pa.types.is_boolean(facts.type)
    return 1 / len(words) if is_amount and words[-1] in LABELS else 0


def _is_free_text(facts: ColumnFacts) -> bool:
    is_text = _is_name(facts) and words_of(facts.name)[-1] not in IDS
    return is_text and facts.distinct > max(_NEARLY_ALL * (facts.num_rows - facts.missing), _FEW)


def _is_serial(facts: ColumnFacts) -> bool:
    """Whether integers number the rows: amounts may all differ too, but not when they lie close together."""
    is_id = words_of(facts.name)[-1] in IDS
    return facts.is_serial and facts.distinct > _FEW and (is_id or facts.is_dense)


def _is_name(facts: ColumnFacts) -> bool:
    return not facts.is_list and (not facts.is_number or words_of(facts.name)[-1] in IDS)


def _is_keyed(facts: ColumnFacts) -> bool:
    """Whether equality is all that counts: text and the like, ids, and integers of few values."""
    is_key = facts.distinct <= _FEW or words_of(facts.name)[-1] in IDS
    return not facts.is_number or (is_key and pa.types.is_integer(facts.type))


# --- putting it together -----------------------------------------------------------------------------------------


def _table(guesses: Sequence[_Guess]) -> str:
    rows = [
        {
            "column": guess.facts.name,
            "type": guess.facts.type_name,
            "kind": "" if guess.feature is None else type(guess.feature).__name__,
            "role": guess.role,
            "distinct": guess.facts.distinct,
            "missing": guess.facts.missing,
            "reason": guess.reason,
        }
        for guess in guesses
    ]
    return str(pd.DataFrame(rows).to_string(index=False))


def _schema(guesses: Sequence[_Guess]) -> Schema:
    roles: dict[str, list[Any]] = {}
    for guess in guesses:
        roles.setdefault(guess.role, []).append(guess.feature or guess.facts.name)
    only: dict[str, Any] = {role: found[0] for role, found in roles.items()}
    return Schema(
        user=only.get("user"),
        item=only.get("item"),
        position=only.get("position"),
        user_features=tuple(roles.get("user feature", ())),
        item_features=tuple(roles.get("item feature", ())),
        context_features=tuple(roles.get("context", ())),
        label=only.get("label"),
    )
