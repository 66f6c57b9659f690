"""What users expect and no page names: folders without a spec, and time zones with summer time."""

from __future__ import annotations

import pytest

from dms_writer import U

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]


def test_a_folder_without_a_spec_is_a_finding_until_it_is_named_as_ignored(open_world):
    w = open_world().table("t").table("other").table("noise")
    for table in w.specs:
        w.source.load(table, (1, "a"))
    for table in ("other", "noise"):
        (w.root / f"specs/{table}.yml").unlink()
    w.specs = {"t": w.specs["t"]}
    w.loaded()
    found = [line for line in w.check() if "other" in line or "noise" in line]
    assert len(found) == 2 and not any(": t:" in line for line in found)
    w.settings["ignore_tables"] = ["public.noi%"]
    assert [line for line in w.check() if line in found] == [line for line in found if "other" in line]


def test_names_in_a_zone_with_summer_time_stop_a_table_only_in_the_hour_that_autumn_repeats(open_world):
    w = open_world(target={"DatePartitionEnabled": True, "DatePartitionTimezone": "Europe/Berlin"})
    for table in ("other_hours", "repeated"):
        w.table(table).source.load(table, (1, "a"))
    w.loaded()
    hours = {"other_hours": ("0130", "0330"), "repeated": ("0259", "0201")}
    commits = {"0130": "2024-10-26 23:30", "0330": "2024-10-27 02:30", "0259": "2024-10-27 00:59", "0201": "2024-10-27 01:01"}  # fmt: skip
    for table, names in hours.items():
        for value, name in zip(("first", "second"), names, strict=True):
            time = f"{commits[name]}:00.000000"
            change = U(1, value, seq="".join(c for c in time if c.isdigit())[:16] + "0" * 19, ts=time)
            w.source.changes(table, change, name=f"2024/10/27/20241027-{name}00000.csv")
    done = w.merge()
    assert done["other_hours"].status == "merged" and w.rows("other_hours") == [(1, "second")]
    assert done["repeated"].failed and done["repeated"].names("20241027-0201"), done["repeated"]
    assert w.rows("repeated") == [(1, "a")]
    for name in ("0259", "0201"):
        assert w.decide("repeated", accept=f"2024/10/27/20241027-{name}00000.csv").went_well
    assert w.rows("repeated") == [(1, "second")]
