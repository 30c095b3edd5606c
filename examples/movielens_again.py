"""Answer from a saved folder, in a process that has never seen the data.

Run:    python examples/movielens_again.py out/movielens 196
Needs:  the folder that examples/movielens.py saves.
Prints: the recommendations for one user, as CSV.
"""

from __future__ import annotations

import sys

from recsys_emb import Recommender


def main(folder: str, user: int) -> str:
    """Load, recommend, print and return the text."""
    text = Recommender.load(folder).recommend([user], k=5).to_csv(index=False)
    print(text, end="")
    return text


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
