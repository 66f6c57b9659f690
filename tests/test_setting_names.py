"""Names of endpoint settings: known in any case, refused with the right spelling if misspelt, reported if unknown."""

from frazil_old.config.settings import SetupSettings
from frazil_old.flows.setup import check_source
from helpers import LOAD1, World


def test_setup_reports_unknown_settings_and_two_values_of_one(tmp_path):
    world = World(tmp_path / "w", "w", {}, DetachTargetOnLobLookupFailureParquet=True)
    world.s3 = {
        "csvnullvalue": "NULL",
        "CSVDELIMITER": "|",
        "addColumnName": True,
        "timestampColumnName": "dms_ts",
        **world.s3,
    }
    world.s3 = {n: v for n, v in world.s3.items() if n not in ("CsvNullValue", "TimestampColumnName")}
    world.rules = {"rules": []}
    world.table("t", "id INT8", "n INT4").write("t", LOAD1, "dms_ts|id|n\n2024-01-01 00:00:00.000000|1|NULL\n")
    rows = check_source(world.book(SetupSettings))
    assert any("DetachTargetOnLobLookupFailureParquet" in r["setting"] for r in rows)
    proved = {r["setting"] for r in rows if r["kind"] == "confirmed"}
    assert {"CsvNullValue", "CsvDelimiter", "AddColumnName", "TimestampColumnName"} <= proved
    assert not [r for r in rows if "csvnullvalue" in r["setting"]]
