"""Bytes to typed changes, and these to the last change of each key: pure Arrow, without Spark and without files.

reading = Reading(spec, ("op", "committed", "after id", "after name"), null="")
blocks = csv.Reader(reading.types, Dialect(), "f.csv", reading.tells_empty).read(pieces)
batch = concat([changes(rows, reading) for rows in blocks])
last = latest(batch, spec.key)
"""
