"""The meaning of DMS's bytes: pure functions from files' bytes and messages to typed changes, in Arrow.

No Spark, no I/O, no clock.
"""
