"""What a user declares, and what it opens: environment, table specs, secrets, Spark, memory, source database, state folder."""
