"""The entries of a warehouse in the section `warehouses` of an environment file."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from frazil_old.config.validation import Entries, Flag, Name, Real, Text
from frazil_old.errors import FrazilError

ENGINES = ("snowflake", "athena", "redshift", "databricks", "bigquery", "trino", "duckdb", "pyiceberg")


def entry(help: str, example: Any = None, default: Any = "", **more: Any) -> Any:
    """Declare an entry: its description, its example and its default."""
    examples = {} if example is None else {"examples": [example]}
    return Field(default, description=help, **examples, **more)


class WarehouseEntries(Entries):
    """A warehouse, or another reader, of the lake's tables."""

    engine: Literal[ENGINES] = entry("What it is.", "snowflake", ...)
    tables: list[Name] = entry("Source tables that it reads, with `%` for any text; left out: all.", ["public.%"], [])
    database: Text = entry(
        "The warehouse's database; of Databricks the catalog, of BigQuery the project. DuckDB: its file.", "analytics"
    )
    namespace: Text = entry("The warehouse's schema or dataset; left out: the lake's namespace of the table.", "shop")
    region: Text = entry(
        "AWS region of the Glue catalog and the bucket; of BigQuery without `account` its own region.", "eu-west-1"
    )
    account: Annotated[Text, Field(pattern=r"^\d{12}$")] | None = entry(
        "AWS account of the Glue catalog: 12 digits, in quotes.", "123456789012", None
    )
    role: Annotated[Text, Field(pattern=r"^arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+$")] = entry(
        "ARN of the IAM role that the warehouse takes to read.", "arn:aws:iam::123456789012:role/frazil-reader"
    )
    location: Annotated[Text, Field(pattern=r"^s3://[a-z0-9.-]+/(.*/)?$")] = entry(
        "Folder of the lake on S3, with a slash at its end.", "s3://my-lake/warehouse/"
    )
    credential: Text = entry(
        "Name of the service credential (Databricks) or connection (BigQuery) that the warehouse has.", "glue_reader"
    )
    integration: Literal["rest", "glue"] = entry(
        "Snowflake only: by Glue's Iceberg `rest` endpoint, or by `glue`.", "rest", "rest"
    )
    linked: Flag = entry(
        "Snowflake only: one catalog-linked database, which finds tables by itself, in place of a table each.",
        True,
        False,
    )
    refresh: Literal["commit", "auto"] = entry(
        "`commit`: refresh after commits. `auto`: the warehouse refreshes by itself, and is only read back.",
        "auto",
        "commit",
    )
    refresh_wait_s: Annotated[Real, Field(ge=0)] = entry(
        "Longest wait for refreshes at the end of a run, in seconds.", 10, 30.0
    )
    max_late_s: Annotated[Real, Field(ge=0)] = entry(
        "Alert (`frazil check`) if a table is late for more seconds than this.", 300, 900.0
    )
    max_late_commits: Annotated[int, Field(ge=0)] = entry(
        "Alert (`frazil check`) if a table is late by more commits than this.", 20, 100
    )
    connect: Text = entry(
        "Function that opens a DB-API connection; left out: that of the usual driver.", "snowflake.connector:connect"
    )
    options: dict[Text, str | int | float | bool] = entry(
        "Arguments of that function that are not secret.", {"account": "ab12345", "user": "frazil"}, {}
    )
    secret: Text = entry(
        "Further arguments as a JSON object: the id of a secret in AWS Secrets Manager, or `env:NAME`, an environment "
        "variable.",
        "env:SNOWFLAKE_LOGIN",
    )

    @model_validator(mode="after")
    def _is_in_a_region(self) -> Self:
        is_googles = self.engine == "bigquery" and not self.account
        if self.region and not is_googles and not re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d", self.region):
            raise FrazilError(f"region: '{self.region}' is no region of AWS", "write region: eu-west-1")
        return self
