"""Parts that several measurements share: policies compared, intervals, texts, results on disk, tables."""
