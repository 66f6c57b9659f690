"""What each warehouse is sent: golden statements, and planted faults that the grammar refuses."""

import pytest

from frazil_old.config.settings import ParameterError, Settings
from frazil_old.config.validation import checked
from frazil_old.config.warehouse_model import ENGINES, WarehouseEntries
from frazil_old.config.warehouses import Warehouse
from frazil_old.errors import FrazilError
from frazil_old.warehouses.family import LakeTable, Made, Served, WarehouseError, family
from warehouse_grammar import grammar, require_properties, require_statement

ORDERS = LakeTable("public.orders", "shop.orders", "s3://lake/shop/orders/metadata/00007-abc.metadata.json")
ENTRIES = {
    "database": "analytics", "region": "eu-west-1", "account": "123456789012", "location": "s3://lake/warehouse/",
    "role": "arn:aws:iam::123456789012:role/reader", "credential": "glue_reader",
}  # fmt: skip


def warehouse(kind: str, **entries) -> Warehouse:
    given = {k: v for k, v in {"engine": kind, **ENTRIES, **entries}.items() if v is not None}
    return Warehouse("wh", "prod", checked(WarehouseEntries, given, "test", ParameterError))


def fitting(w: Warehouse, tables: list[LakeTable]) -> list[Made]:
    """What is made, of which all statements have to fit the grammar."""
    module = family(w)
    found = module.made(w, tables)
    reading = [s for t in tables for s in (*module.refresh(w, t), module.read_back(w, t)) if s]
    for statement in (*(s for m in found for s in (m.create, m.drop, m.find)), *reading):
        require_statement(w, statement)
    for properties in module.files(w).values():
        require_properties(w, properties)
    return found


def statements(w: Warehouse) -> list[str]:
    """All that a warehouse is sent for one table, each once."""
    module = family(w)
    found = fitting(w, [ORDERS])
    texts = [s for m in found for s in (m.create, m.drop, m.find)]
    return list(dict.fromkeys([*texts, *module.refresh(w, ORDERS), *filter(None, [module.read_back(w, ORDERS)])]))


INTEGRATION = (
    'CREATE CATALOG INTEGRATION IF NOT EXISTS "FRAZIL_PROD_WH_CATALOG" CATALOG_SOURCE = ICEBERG_REST TABLE_FORMAT = ICEBERG '
    "CATALOG_NAMESPACE = 'shop' REST_CONFIG = (CATALOG_URI = 'https://glue.eu-west-1.amazonaws.com/iceberg' "
    "CATALOG_API_TYPE = AWS_GLUE CATALOG_NAME = '123456789012') REST_AUTHENTICATION = (TYPE = SIGV4 "
    "SIGV4_IAM_ROLE = 'arn:aws:iam::123456789012:role/reader' SIGV4_SIGNING_REGION = 'eu-west-1') ENABLED = TRUE"
)
VOLUME = (
    "CREATE EXTERNAL VOLUME IF NOT EXISTS \"FRAZIL_PROD_WH_VOLUME\" STORAGE_LOCATIONS = ((NAME = 'lake' STORAGE_PROVIDER = 'S3' "
    "STORAGE_BASE_URL = 's3://lake/warehouse/' STORAGE_AWS_ROLE_ARN = 'arn:aws:iam::123456789012:role/reader')) ALLOW_WRITES = FALSE"
)
TABLE = (
    'CREATE ICEBERG TABLE IF NOT EXISTS "ANALYTICS"."SHOP"."ORDERS" EXTERNAL_VOLUME = \'FRAZIL_PROD_WH_VOLUME\' '
    "CATALOG = 'FRAZIL_PROD_WH_CATALOG' CATALOG_TABLE_NAME = 'orders' CATALOG_NAMESPACE = 'shop' AUTO_REFRESH = FALSE"
)
GOLDEN = {
    "snowflake": (
        {},
        [INTEGRATION, VOLUME, 'CREATE SCHEMA IF NOT EXISTS "ANALYTICS"."SHOP"', TABLE],
        ['ALTER ICEBERG TABLE "ANALYTICS"."SHOP"."ORDERS" REFRESH'],
        "SELECT SYSTEM$GET_ICEBERG_TABLE_INFORMATION('\"ANALYTICS\".\"SHOP\".\"ORDERS\"')",
    ),
    "snowflake by Glue, refreshing itself": (
        {"integration": "glue", "refresh": "auto", "namespace": "sales"},
        [
            'CREATE CATALOG INTEGRATION IF NOT EXISTS "FRAZIL_PROD_WH_CATALOG" CATALOG_SOURCE = GLUE TABLE_FORMAT = ICEBERG '
            "GLUE_AWS_ROLE_ARN = 'arn:aws:iam::123456789012:role/reader' GLUE_CATALOG_ID = '123456789012' "
            "GLUE_REGION = 'eu-west-1' CATALOG_NAMESPACE = 'shop' ENABLED = TRUE",
            VOLUME,
            'CREATE SCHEMA IF NOT EXISTS "ANALYTICS"."SALES"',
            TABLE.replace('"SHOP"', '"SALES"').replace("AUTO_REFRESH = FALSE", "AUTO_REFRESH = TRUE"),
        ],
        [],
        "SELECT SYSTEM$AUTO_REFRESH_STATUS('\"ANALYTICS\".\"SALES\".\"ORDERS\"')",
    ),
    "snowflake, linked": (
        {"linked": True},
        [
            INTEGRATION,
            VOLUME,
            "CREATE DATABASE IF NOT EXISTS \"ANALYTICS\" LINKED_CATALOG = (CATALOG = 'FRAZIL_PROD_WH_CATALOG', "
            "ALLOWED_NAMESPACES = ('shop')), EXTERNAL_VOLUME = 'FRAZIL_PROD_WH_VOLUME'",
        ],
        [],
        'SELECT SYSTEM$AUTO_REFRESH_STATUS(\'"ANALYTICS"."shop"."orders"\')',
    ),
    "athena": ({}, [], [], "SELECT snapshot_id FROM \"shop\".\"orders$refs\" WHERE name = 'main'"),
    "redshift": (
        {},
        [
            "CREATE EXTERNAL SCHEMA IF NOT EXISTS \"shop\" FROM DATA CATALOG DATABASE 'shop' REGION 'eu-west-1' "
            "IAM_ROLE 'arn:aws:iam::123456789012:role/reader' CATALOG_ID '123456789012'"
        ],
        [],
        "",
    ),
    "databricks": (
        {},
        [
            "CREATE CONNECTION IF NOT EXISTS `frazil_prod_wh_glue` TYPE glue OPTIONS (aws_region 'eu-west-1', "
            "aws_account_id '123456789012', credential 'glue_reader')",
            "CREATE FOREIGN CATALOG IF NOT EXISTS `analytics` USING CONNECTION `frazil_prod_wh_glue` "
            "OPTIONS (authorized_paths 's3://lake/warehouse/')",
        ],
        ["REFRESH FOREIGN TABLE `analytics`.`shop`.`orders`"],
        "DESCRIBE TABLE EXTENDED `analytics`.`shop`.`orders`",
    ),
    "bigquery": (
        {},
        [
            "CREATE EXTERNAL SCHEMA IF NOT EXISTS `analytics`.`shop` WITH CONNECTION `analytics`.`aws-eu-west-1`.`glue_reader` "
            "OPTIONS (external_source = 'aws-glue://arn:aws:glue:eu-west-1:123456789012:database/shop', location = 'aws-eu-west-1')"
        ],
        [],
        "",
    ),
    "bigquery by metadata files": (
        {"account": None, "region": "EU"},
        [
            "CREATE EXTERNAL TABLE IF NOT EXISTS `analytics`.`shop`.`orders` WITH CONNECTION `analytics`.`EU`.`glue_reader` "
            "OPTIONS (format = 'ICEBERG', uris = ['s3://lake/shop/orders/metadata/00007-abc.metadata.json'])"
        ],
        [
            "CREATE OR REPLACE EXTERNAL TABLE `analytics`.`shop`.`orders` WITH CONNECTION `analytics`.`EU`.`glue_reader` "
            "OPTIONS (format = 'ICEBERG', uris = ['s3://lake/shop/orders/metadata/00007-abc.metadata.json'])"
        ],
        "SELECT ddl FROM `analytics`.`shop`.`INFORMATION_SCHEMA`.TABLES WHERE table_name = 'orders'",
    ),
    "trino": ({}, [], [], "SELECT snapshot_id FROM \"analytics\".\"shop\".\"orders$refs\" WHERE name = 'main'"),
    "duckdb": (
        {},
        [
            'CREATE SCHEMA IF NOT EXISTS "shop"',
            'CREATE VIEW IF NOT EXISTS "shop"."orders" AS SELECT * FROM '
            "iceberg_scan('s3://lake/shop/orders/metadata/00007-abc.metadata.json')",
        ],
        [
            'CREATE OR REPLACE VIEW "shop"."orders" AS SELECT * FROM '
            "iceberg_scan('s3://lake/shop/orders/metadata/00007-abc.metadata.json')"
        ],
        "SELECT sql FROM duckdb_views() WHERE schema_name = 'shop' AND view_name = 'orders'",
    ),
    "pyiceberg": ({}, [], [], ""),
}  # fmt: skip


def golden(case: str) -> Warehouse:
    return warehouse(case.split()[0].strip(","), **GOLDEN[case][0])


@pytest.mark.parametrize("case", GOLDEN)
def test_a_warehouse_is_sent_exactly_these_statements(case):
    w, (_, made, refresh, read_back) = golden(case), GOLDEN[case]
    assert [m.create for m in fitting(w, [ORDERS])] == made
    assert family(w).refresh(w, ORDERS) == refresh
    assert family(w).read_back(w, ORDERS) == read_back


def test_every_kind_of_warehouse_has_golden_statements_and_forms():
    assert {case.split()[0].strip(",") for case in GOLDEN} == set(ENGINES) == set(grammar()["forms"])


FAULTS = {
    "snowflake": [
        ("CATALOG_SOURCE", "CATALOG_SORCE"), ("= AWS_GLUE", "= GLUE"), ("'123456789012'", "'12345678901'"), ("))", ")"),
        ("role/reader", ""), ("s3://", "s3a://"), ("glue.eu-west-1", "glue.eu-west"), ("AUTO_REFRESH = FALSE", "AUTO_REFRESH = 'FALSE'"),
        ("ALTER ICEBERG TABLE", "ALTER TABLE"), ("IF NOT EXISTS", "IF EXISTS"), ("EXTERNAL_VOLUME = 'FRAZIL_PROD_WH_VOLUME'", ""),
        ("REFRESH", "REFRESH 'metadata/1.metadata.json'"), (" RESTRICT", " CASCADE"), ("ENABLED = TRUE", "ENABLED = FALSE"),
    ],
    "athena": [
        ("$refs", "$snapshots"), ('"shop".', ""), ("snapshot_id", "*"), ("'main'", "'frazil'"), ('"orders$refs"', "orders$refs"),
        (" WHERE name = 'main'", ""),
    ],
    "redshift": [
        ("FROM DATA CATALOG", "FROM GLUE"), ("IAM_ROLE", "ROLE"), ("'eu-west-1'", "eu-west-1"), ("EXTERNAL SCHEMA", "SCHEMA"),
        ("iam::123456789012", "iam::1234"), ("CATALOG_ID '", "CATALOG_ID '0"), ("RESTRICT", "CASCADE"), ("IF EXISTS", "IF EXISTS IF EXISTS"),
    ],
    "databricks": [
        ("TYPE glue", "TYPE hive"), ("aws_region '", "region '"), ("aws_account_id '123456789012', ", ""), ("USING CONNECTION", "CONNECTION"),
        ("'s3://lake/warehouse/'", "'/lake/warehouse/'"), ("REFRESH FOREIGN TABLE", "REFRESH TABLE"), ("`shop`.", ""), ("FOREIGN CATALOG", "CATALOG"),
        ("authorized_paths", "authorised_paths"),
    ],
    "bigquery": [
        ("aws-glue://", "glue://"), ("WITH CONNECTION", "CONNECTION"), ("location = 'aws-", "location = '"), ("`analytics`.`shop`", "`shop`"),
        ("external_source", "source"), (":123456789012:", "::"), ("EXTERNAL SCHEMA", "SCHEMA"),
    ],
    "trino": [
        ("$refs", "$history"), ('"analytics".', ""), ("'main'", "main"), ("snapshot_id", "snapshot"), ("WHERE", "AND"), ("SELECT", "SELECT DISTINCT"),
    ],
    "duckdb": [
        ("iceberg_scan", "iceberg_scann"), (".metadata.json", ".json"), ('"shop".', ""), ("CREATE OR REPLACE VIEW", "CREATE OR REPLACE TABLE"),
        ("SELECT * FROM", "SELECT FROM"), ("s3://", "s3a://"), ("RESTRICT", "CASCADE"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", FAULTS)
def test_a_planted_fault_is_refused(kind):
    cases = [golden(c) for c in GOLDEN if c.split()[0].strip(",") == kind]
    assert len(FAULTS[kind]) >= 5
    for right, wrong in FAULTS[kind]:
        planted = [(w, s.replace(right, wrong, 1)) for w in cases for s in statements(w) if right in s]
        assert planted, f"no statement has {right}"
        for w, statement in planted:
            with pytest.raises(WarehouseError, match=f"{kind} takes no such statement"):
                require_statement(w, statement)


def test_a_refusal_names_the_first_part_that_does_not_fit():
    w = warehouse("redshift")
    with pytest.raises(WarehouseError) as refused:
        require_statement(w, fitting(w, [ORDERS])[0].create.replace("'eu-west-1'", "'eu_west'"))
    assert "'eu_west' does not fit" in refused.value.problem
    assert refused.value.cure == "correct the entries of the warehouse in params/prod.yml"


@pytest.mark.parametrize(
    ("kind", "entry", "value"),
    [("snowflake", "role", "reader"), ("redshift", "region", "Ireland"), ("databricks", "location", "lake"),
     ("bigquery", "region", "EU"), ("trino", "region", "EU"), ("pyiceberg", "region", "EU")],
)  # fmt: skip
def test_a_wrong_entry_is_refused_before_anything_is_sent(kind, entry, value):
    with pytest.raises(ParameterError, match=f"{entry}: '{value}' "):
        warehouse(kind, **{entry: value})


@pytest.mark.parametrize("kind", ["trino", "pyiceberg"])
def test_a_planted_fault_in_a_configuration_file_is_refused(kind):
    w = warehouse(kind)
    (properties,) = family(w).files(w).values()
    require_properties(w, properties)
    some = next(n for n in properties if n.endswith("region"))
    faults = [{**properties, some: "eu"}, {**properties, f"{some}s": "eu-west-1"}, {**properties, some: ""},
              {n + "x": v for n, v in properties.items()}, {n: v + "x" for n, v in properties.items()}]  # fmt: skip
    for planted in faults:
        with pytest.raises(WarehouseError, match="takes no property"):
            require_properties(w, planted)


def test_the_files_of_trino_and_pyiceberg_are_these():
    w = warehouse("trino")
    assert family(w).files(w) == {
        "analytics.properties": {
            "connector.name": "iceberg", "iceberg.catalog.type": "glue", "hive.metastore.glue.region": "eu-west-1",
            "hive.metastore.glue.catalogid": "123456789012", "fs.native-s3.enabled": "true", "s3.region": "eu-west-1",
            "s3.iam-role": "arn:aws:iam::123456789012:role/reader", "iceberg.security": "read_only",
        }
    }  # fmt: skip
    w = warehouse("pyiceberg")
    assert family(w).files(w) == {
        ".pyiceberg.yaml": {
            "catalog.analytics.type": "glue", "catalog.analytics.glue.region": "eu-west-1",
            "catalog.analytics.s3.region": "eu-west-1", "catalog.analytics.glue.id": "123456789012",
        }
    }  # fmt: skip


BUCKET = "arn:aws:s3tables:eu-west-1:111122223333:bucket/my-tables"
LAKES = {
    "sqlite": {"type": "jdbc", "uri": "jdbc:sqlite:runs/l/catalog.db", "warehouse": "runs/l/warehouse"},
    "rest": {"type": "rest", "uri": "https://lake.example/api", "warehouse": "main"},
    "hive": {"type": "hive", "uri": "thrift://h:9083"},
    "signed": {"type": "rest", "uri": "https://s3tables.eu-west-1.amazonaws.com/iceberg", "warehouse": BUCKET, "s3.secret-access-key": "no",
               "rest.sigv4-enabled": "true", "rest.signing-name": "s3tables", "rest.signing-region": "eu-west-1"},
    "s3tables": {"catalog-impl": "software.amazon.s3tables.iceberg.S3TablesCatalog", "warehouse": BUCKET},
}  # fmt: skip
SIGNED = {
    "trino": {
        "iceberg.catalog.type": "rest", "iceberg.rest-catalog.uri": LAKES["signed"]["uri"], "iceberg.rest-catalog.warehouse": BUCKET,
        "iceberg.rest-catalog.security": "SIGV4", "iceberg.rest-catalog.signing-name": "s3tables",
        "iceberg.rest-catalog.view-endpoints-enabled": "false", "s3.region": "eu-west-1",
    },
    "pyiceberg": {
        "catalog.a.type": "rest", "catalog.a.uri": LAKES["signed"]["uri"], "catalog.a.warehouse": BUCKET, "catalog.a.rest.sigv4-enabled": "true",
        "catalog.a.rest.signing-name": "s3tables", "catalog.a.rest.signing-region": "eu-west-1",
    },
}  # fmt: skip
IN_THE_FILE = {
    ("trino", "rest"): {"iceberg.catalog.type": "rest", "iceberg.rest-catalog.uri": "https://lake.example/api", "iceberg.rest-catalog.warehouse": "main"},
    ("pyiceberg", "rest"): {"catalog.a.type": "rest", "catalog.a.uri": "https://lake.example/api", "catalog.a.warehouse": "main"},
    ("pyiceberg", "sqlite"): {"catalog.a.type": "sql", "catalog.a.uri": "sqlite:////w/runs/l/catalog.db", "catalog.a.warehouse": "/w/runs/l/warehouse"},
}  # fmt: skip


@pytest.mark.parametrize("kind", ["trino", "pyiceberg"])
@pytest.mark.parametrize("lake", LAKES)
def test_a_configuration_file_names_the_catalog_that_the_lake_has(kind, lake):
    entries = checked(WarehouseEntries, {"engine": kind, "database": "a"}, "test", ParameterError)
    w = Warehouse("wh", "prod", entries, Settings(env="prod", root="/w", catalog_options=LAKES[lake]))
    wanted = SIGNED[kind] if lake in ("signed", "s3tables") else IN_THE_FILE.get((kind, lake))
    if wanted is None:
        with pytest.raises(WarehouseError, match="cannot read a lake whose catalog is of type") as e:
            fitting(w, [ORDERS])
        assert "Glue or a REST catalog" in e.value.cure
        return
    fitting(w, [ORDERS])
    (properties,) = family(w).files(w).values()
    assert wanted.items() <= properties.items() and not any("glue" in n or "secret" in n for n in properties)


@pytest.mark.parametrize("name", ['or"ders', "or'ders", "or`ders", "or;DROP TABLE x--"])
@pytest.mark.parametrize("case", [c for c in GOLDEN if "pyiceberg" not in c])
def test_a_hostile_name_stays_a_name_or_is_refused(case, name):
    w = golden(case)
    table = LakeTable("public.x", f"shop.{name}", f"s3://lake/{'x'}/metadata/1.metadata.json")
    try:
        made = fitting(w, [table])
    except WarehouseError:
        return
    for statement in [m.create for m in made] + family(w).refresh(w, table):
        bare = statement.replace('""', "").replace("``", "").replace("''", "").replace("\\'", "")
        assert all(bare.count(q) % 2 == 0 for q in "\"`'" if name.replace(q, "") == name), statement


def test_a_missing_entry_is_named():
    with pytest.raises(WarehouseError, match=r"warehouse 'wh' \(snowflake\) lacks role, location") as refused:
        family(warehouse("snowflake", role=None, location=None))
    assert "params/prod.yml" in refused.value.cure


@pytest.mark.parametrize(
    ("kind", "rows", "served"),
    [
        ("snowflake", [('{"metadataLocation":"s3://l/m/7.metadata.json","status":"success"}',)], Served(None, "s3://l/m/7.metadata.json")),
        ("snowflake", [('{"executionState":"RUNNING","currentSnapshotId":"77"}',)], Served(77)),
        ("snowflake", [('{"executionState":"STALLED","invalidExecutionStateReason":"no file","currentSnapshotId":"7"}',)],
         Served(7, "", "STALLED: no file")),
        ("snowflake", [("no JSON",)], Served()),
        ("athena", [(7,)], Served(7)),
        ("trino", [("7",)], Served(7)),
        ("trino", [], Served()),
        ("duckdb", [("CREATE VIEW x AS SELECT * FROM iceberg_scan('/l/m/7.metadata.json');",)], Served(None, "/l/m/7.metadata.json")),
        ("duckdb", [("""CREATE VIEW "o'x" AS SELECT * FROM iceberg_scan('/l/o''x y/7.metadata.json');""",)],
         Served(None, "/l/o'x y/7.metadata.json")),
        ("bigquery", [("""OPTIONS(format="ICEBERG", uris=["s3://l/o'x y/7.metadata.json"]);""",)],
         Served(None, "s3://l/o'x y/7.metadata.json")),
        ("databricks", [("Location", "s3://l/a b"), ("Metadata", "s3://l/a b/7.metadata.json")],
         Served(None, "s3://l/a b/7.metadata.json")),
        ("databricks", [("Location", "s3://l"), ("Properties", "[metadata_location=s3://l/m/7.metadata.json,x=1]")],
         Served(None, "s3://l/m/7.metadata.json")),
        ("redshift", [(1,)], Served()),
    ],
)  # fmt: skip
def test_what_is_served_is_read_from_the_answer(kind, rows, served):
    assert family(warehouse(kind)).served(rows) == served


@pytest.mark.parametrize(
    ("entries", "says"),
    [({"engine": "snowflak"}, "unknown engine 'snowflak'.*did you mean 'snowflake'"), ({"engine": "trino", "acount": "1"}, "unknown entry 'acount'"),
     ({"engine": "trino", "account": 12}, "account"), ({"engine": "trino", "refresh_wait_s": -1}, "refresh_wait_s"), ({}, "no engine")],
)  # fmt: skip
def test_wrong_entries_are_refused(entries, says):
    import re

    with pytest.raises(FrazilError) as refused:
        checked(WarehouseEntries, entries, "test", ParameterError)
    assert re.search(says, str(refused.value), re.S)


@pytest.mark.parametrize(
    ("tables", "source", "reads"),
    [([], "public.a", True), (["public.%"], "public.a", True), (["public.a"], "public.ab", False), (["%.a"], "x.a", True),
     (["public.a"], "publicxa", False)],
)  # fmt: skip
def test_a_warehouse_reads_the_tables_that_it_names(tables, source, reads):
    assert warehouse("trino", tables=tables).reads(source) is reads
