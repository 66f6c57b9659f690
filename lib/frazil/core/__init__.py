"""Bytes to typed changes, and these to the last change of each key: pure Arrow, without Spark and without files."""
