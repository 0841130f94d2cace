"""Recorded behavior: stored compactly, checked whenever asked, packed into batches."""
