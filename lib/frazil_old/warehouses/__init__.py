"""Warehouses that read the lake's tables: what they need, how they are refreshed, and what they serve."""
