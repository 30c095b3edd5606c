"""Tables that are spread over several processes, by TorchRec: the same factorization, learned where it fits."""

from recsys_emb.integrations.torchrec.checkpoints import ShardedCheckpoints, last_checkpoint, read_factorization
from recsys_emb.integrations.torchrec.configs import bag_configs, collection_configs, keyed_jagged
from recsys_emb.integrations.torchrec.factorization import ShardedFactorization
from recsys_emb.integrations.torchrec.placement import ColumnWise, RowWise, TableWise
from recsys_emb.integrations.torchrec.training import train_sharded

__all__ = [
    "ColumnWise",
    "RowWise",
    "ShardedCheckpoints",
    "ShardedFactorization",
    "TableWise",
    "bag_configs",
    "collection_configs",
    "keyed_jagged",
    "last_checkpoint",
    "read_factorization",
    "train_sharded",
]
