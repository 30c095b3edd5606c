"""Leaf rooms that meet other systems, each an optional extra."""
