"""What people look at: tables, charts, latency, records of runs, metrics."""
