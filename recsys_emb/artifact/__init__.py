"""A saved recommender: a folder of JSON, Parquet and safetensors that is whole or not there."""
