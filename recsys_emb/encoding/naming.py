"""What the name of a column suggests."""

from __future__ import annotations

import re


def _any_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


USERS = _any_of(
    "user customer client member visitor shopper buyer reader viewer listener consumer subscriber account reviewer "
    "rater person juror"
)
ITEMS = _any_of(
    "item movie film product article song track album artist book video show game sku asin isbn ad offer place "
    "restaurant venue business hotel poi recipe anime joke news post"
)
# Names too short to mean anything alone; together they are a user and an item.
SHORT_PAIRS = (("u", "i"), ("uid", "iid"))
IDS = _any_of("id key no number code uuid guid hash idx")
POSITIONS = _any_of("position pos slot rank")
LABELS = _any_of(
    "rating label score star stars click clicks clicked like liked likes liking target purchase purchased bought "
    "conversion converted watched response relevance feedback y"
)
TIMES = _any_of("timestamp time date datetime ts")

# What the index of a pandas frame, or of a frame that went through a CSV file, is called once it is a column.
_ROW_NUMBERS = re.compile(r"__.*__|Unnamed: \d+|index")


def words_of(name: str) -> list[str]:
    """Words of a name in snake_case, camelCase or with blanks, at least one; a glued "userid" is two words.

    >>> words_of("userId"), words_of("Movie ID"), words_of("itemid"), words_of("brew_temp_c")
    (['user', 'id'], ['movie', 'id'], ['item', 'id'], ['brew', 'temp', 'c'])
    """
    apart = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    words = re.findall(r"[a-z0-9]+", apart.lower()) or [name]
    glued = words[0][:-2] if len(words) == 1 and words[0].endswith("id") else ""
    return [glued, "id"] if glued in USERS | ITEMS else words


def identifies(name: str, kind: frozenset[str]) -> int:
    """How surely a name identifies one of ``kind``: 2 for "user_id", 1 for "user", 0 for "user_age".

    >>> [identifies(name, USERS) for name in ("user_id", "user", "user_age")]
    [2, 1, 0]
    """
    words = words_of(name)
    if len(words) > 1 and words[-1] in IDS and words[-2] in kind:
        return 2
    return int(len(words) == 1 and words[0] in kind)


def numbers_rows(name: str) -> bool:
    """Whether a column of this name only numbers the rows.

    >>> numbers_rows("__index_level_0__"), numbers_rows("Unnamed: 0"), numbers_rows("slot")
    (True, True, False)
    """
    return bool(_ROW_NUMBERS.fullmatch(name))
