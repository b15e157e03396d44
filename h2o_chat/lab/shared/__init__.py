"""Parts that several measurements share: policies compared, intervals, texts, tables."""
