"""Numbers and pictures about data, vocabularies, tables and runs."""
