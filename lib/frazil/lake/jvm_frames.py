"""DataFrames of Arrow tables on Spark 3.5, made as Spark 4 makes them: its JVM reads Arrow's batches, without any Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow import Table
    from pyspark.sql import DataFrame, SparkSession


def arrow_frame(spark: SparkSession, rows: Table) -> DataFrame:
    """Return an Arrow table as a DataFrame."""
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer
    from pyspark.sql.pandas.types import from_arrow_schema

    utils = spark._jvm.PythonSQLUtils
    batches = spark.sparkContext._serialize_to_jvm(
        rows.to_batches(), ArrowStreamSerializer(), utils.readArrowStreamFromFile, spark._jvm.ArrowIteratorServer
    )
    schema = from_arrow_schema(rows.schema).json()
    return DataFrame(utils.toDataFrame(batches, schema, spark._jsparkSession), spark)
