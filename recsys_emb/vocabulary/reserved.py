"""The rows that come first in every table, whatever its vocabulary; unknown buckets go on from `UNKNOWN_INDEX`."""

PADDING_INDEX = 0
MISSING_INDEX = 1
UNKNOWN_INDEX = 2
