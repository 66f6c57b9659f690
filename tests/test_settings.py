"""Parameters and table specs: what wins over what, and refusals that name the cure."""

import json

import pytest
import yaml

from frazil_old.config.environment_file import RENAMED, RETIRED, WAREHOUSES, find_params
from frazil_old.config.settings import NOTEBOOKS, ParameterError, resolve
from frazil_old.config.spec import SpecError, load_specs, parse_spec
from helpers import World, spec_of

# --- resolve


@pytest.fixture
def params(tmp_path, monkeypatch):
    """Write environment files: `params(env, common=…, cdc_merge=…)`."""
    monkeypatch.setenv("FRAZIL_PARAMS", str(tmp_path))

    def write(env="demo", **sections):
        (tmp_path / f"{env}.yml").write_text(yaml.safe_dump(sections))

    write()
    return write


def test_the_cell_wins_over_the_section_over_common_over_the_default(params):
    params(common={"parallel_tables": 3, "catalog": "c", "runs": "r"}, cdc_merge={"parallel_tables": 4, "catalog": "s"})
    resolved = resolve("cdc_merge", {"parallel_tables": 5})
    s = resolved.settings
    assert (s.parallel_tables, s.catalog, s.runs, s.max_batch_mb) == (5, "s", "r", 256)
    assert [resolved.origin[n] for n in ("parallel_tables", "catalog", "runs", "max_batch_mb")] == [
        "the notebook's cell", "demo.yml: cdc_merge", "demo.yml: common", "default",
    ]  # fmt: skip


def test_sections_of_other_notebooks_do_not_count(params):
    params(maintenance={"parallel_tables": 9})
    assert resolve("cdc_merge", {}).settings.parallel_tables == 2


def test_the_environment_chooses_the_file_and_its_root(params, tmp_path):
    params("other", common={"source": "there"})
    settings = resolve("setup", {"env": "other"}).settings
    assert settings.path("source") == tmp_path.parent / "there"


def test_none_in_the_cell_means_not_set(params):
    params(common={"parallel_tables": 3})
    assert resolve("setup", {"parallel_tables": None}).settings.parallel_tables == 3


def test_a_whole_number_serves_as_a_float(params):
    hours = resolve("latency", {"hours": 3}).settings.hours
    assert (hours, type(hours)) == (3.0, float)


def test_a_run_until_stopped_is_said_as_the_readme_has_it(params):
    """YAML reads `inf` as a text: in the file, and behind `frazil run -p`."""
    params(cdc_merge={"run_for_s": "inf"})
    assert resolve("cdc_merge", {}).settings.run_for_s == float("inf")
    assert resolve("cdc_merge", {"run_for_s": "inf", "trigger_s": 1}).settings.run_for_s == float("inf")


def test_what_is_no_plain_value_in_the_cell_is_left_alone(params):
    resolve(
        "setup",
        {"json": json, "_private": 1, "In": [], "Out": {}, "spark": 1, "function": lambda: 1, "cls": ParameterError},
    )


def test_a_parameter_of_an_earlier_version_is_ignored_with_a_warning(params):
    params(maintenance={"z_order": True, "managed_by": "glue"})
    with pytest.warns(UserWarning, match="demo.yml: maintenance: z_order is no longer used: .* rewrite_data_files"):
        assert resolve("maintenance", {}).settings.managed_by == "glue"
    params(setup={"statistics": "s.json"})
    with pytest.warns(UserWarning, match="the notebook's cell: statistics is no longer used: .* compute_table_stats"):
        resolve("maintenance", {"statistics": True})
    assert resolve("setup", {}).settings.statistics == "s.json"


@pytest.mark.parametrize(("of", "name"), RETIRED)
def test_each_retired_parameter_is_ignored_in_a_file_and_in_a_cell(params, tmp_path, of, name):
    notebook = "setup" if of == "common" else of
    usual = resolve(notebook, {}).settings
    for section in {of, notebook}:
        params(**{section: {name: 5}})
        with pytest.warns(UserWarning, match=f"demo.yml: {section}: {name} is no longer used: "):
            assert resolve(notebook, {}).settings == usual
    params()
    with pytest.warns(UserWarning, match=f"the notebook's cell: {name} is no longer used: "):
        assert resolve(notebook, {name: 5}).settings == usual


EARLIER = [
    pytest.param(notebook, section, old, new, id=f"{old}-{notebook}-{section}")
    for (of, old), new in RENAMED.items()
    for notebook in (NOTEBOOKS if of == "common" else [of])
    for section in dict.fromkeys((of, notebook))
    if section != WAREHOUSES
]
"""Each earlier name, with every notebook that knows it, and every section of the file that may hold it."""
earlier_names = pytest.mark.parametrize(("notebook", "section", "old", "new"), EARLIER)


def unusual(notebook: str, name: str):
    """Return a value that a parameter may have and that is not its default."""
    default = getattr(NOTEBOOKS[notebook](), name)
    return ["x"] if isinstance(default, list) else f"{default}x" if isinstance(default, str) else default + 1


@earlier_names
def test_an_earlier_name_works_in_a_file_and_in_a_cell_and_warns_once_with_the_new_name(
    params, notebook, section, old, new
):
    value = unusual(notebook, new)
    params(**{section: {old: value}})
    for cell, where in (({}, f"demo.yml: {section}"), ({old: value}, "the notebook's cell")):
        with pytest.warns(UserWarning, match=f"{where}: {old} is now called {new}$") as warned:
            resolved = resolve(notebook, cell)
        assert getattr(resolved.settings, new) == value and resolved.origin[new] == where
        assert [str(w.message).endswith(f"{where}: {old} is now called {new}") for w in warned] == [True]
        params()


@earlier_names
def test_both_names_together_are_refused_and_one_without_a_value_does_not_count(params, notebook, section, old, new):
    value = unusual(notebook, new)
    for given in ({old: value, new: value}, {new: value, old: value}):
        params()
        with pytest.raises(ParameterError, match=f"the notebook's cell: {old} is now called {new}, and both"):
            resolve(notebook, given)
        params(**{section: given})
        with pytest.raises(ParameterError, match=f"demo.yml: {section}: {old} is now called {new}, and both"):
            resolve(notebook, {})
    params(**{section: {new: value, old: None}})
    assert getattr(resolve(notebook, {}).settings, new) == value
    params(**{section: {old: value, new: None}})
    with pytest.warns(UserWarning, match=f"{old} is now called {new}$"):
        assert getattr(resolve(notebook, {}).settings, new) == value


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ({"paralel_tables": 1}, "did you mean 'parallel_tables'"),
        ({"x": 1}, "unknown parameter 'x'"),
        ({"late_files": "after"}, "'late_files' has no effect here\n  cure: it is a parameter of cdc_merge$"),
        ({"env": "dmeo"}, "did you mean 'demo'"),
        ({"parallel_tables": "2"}, "parallel_tables: '2' should be a valid integer"),
        ({"parallel_tables": True}, "parallel_tables: True should be a valid integer"),
        ({"parallel_tables": 2.0}, "parallel_tables: 2.0 should be a valid integer"),
        ({"tables": "public.t"}, "should be a valid list\n  cure: write tables: \\[public.t\\]"),
        ({"tables": [1]}, "tables: 1 should be a valid string\n  cure: put it in quotes"),
        ({"source": 1}, "source: 1 should be a valid string"),
        ({"parallel_tables": 0}, "0 should be greater than or equal to 1"),
        ({"env": 1}, "the notebook's cell: env: 1 should be a valid string"),
    ],
)
def test_a_wrong_cell_is_refused(params, cell, says):
    with pytest.raises(ParameterError, match=says):
        resolve("setup", cell)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"typ": "jdbc", "uri": "u", "warehouse": "w"}, "has no 'type'\n  cure: write it instead of 'typ'"),
        ({"type": "jdb"}, "unknown type 'jdb'\n  cure: did you mean 'jdbc'"),
        ({"type": "jdbc", "uri": "u", "warehous": "w"}, "has no 'warehouse'\n  cure: write it instead of 'warehous'"),
        ({"type": "jdbc", "uri": "u"}, "has no 'warehouse'\n  cure: write it, as"),
        ({"type": "rest"}, "demo.yml: common: catalog_options has no 'uri'"),
    ],
)
def test_a_catalog_that_is_not_whole_is_refused(params, options, says):
    params(common={"catalog_options": options})
    with pytest.raises(ParameterError, match=says):
        resolve("setup", {})


@pytest.mark.parametrize(
    "options", [{}, {"type": "Glue"}, {"catalog-impl": "org.x.Catalog"}, {"type": "rest", "uri": "https://c"}]
)
def test_options_that_say_what_the_catalog_is_are_taken(params, options):
    params(common={"catalog_options": options})
    assert resolve("setup", {}).settings.catalog_options == options


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ({"comon": {}}, "unknown section 'comon'\n  cure: did you mean 'common'"),
        ({"common": {"sorce": "x"}}, "common: unknown parameter 'sorce'\n  cure: did you mean 'source'"),
        (
            {"common": {"max_batch_mb": 1}},
            "common: 'max_batch_mb' has no effect here\n  cure: write it in section cdc_merge$",
        ),
        (
            {"full_load": {"dry_run": True}},
            "full_load: 'dry_run' has no effect here\n  cure: write it in section maintenance or warehouses",
        ),
        ({"source": "x"}, "the top level: 'source' has no effect here\n  cure: write it in section common$"),
        (
            {"common": {"warehouses": {}}},
            "common: 'warehouses' has no effect here\n  cure: it is a section: write it without indentation",
        ),
        ({"cdc_merge": {"max_batch_md": 1}}, "did you mean 'max_batch_mb'"),
        ({"common": {"env": "x"}}, "unknown parameter 'env'"),
        ({"common": {"parallel_tables": "2"}}, "demo.yml: common: parallel_tables: '2' should be a valid integer"),
        ({"common": ["source"]}, "common: this is not of the form `name: value`\n  cure: "),
        ({"common": "source"}, "common: this is not of the form `name: value`\n  cure: "),
    ],
)
def test_a_wrong_file_is_refused(params, sections, says):
    params(**sections)
    with pytest.raises(ParameterError, match=says):
        resolve("cdc_merge", {})


def test_a_wrong_policy_is_refused(params):
    with pytest.raises(ParameterError, match="unknown on_changed_load 'replace'\n  cure: did you mean 'replay'"):
        resolve("full_load", {"on_changed_load": "replace"})


def test_broken_yaml_is_refused(params, tmp_path):
    (tmp_path / "demo.yml").write_text("common: [")
    with pytest.raises(ParameterError, match="not YAML.*\n  cure: correct the file$"):
        resolve("setup", {})
    (tmp_path / "demo.yml").write_text("- common")
    with pytest.raises(ParameterError, match="demo.yml: this is not of the form"):
        resolve("setup", {})


def test_a_section_that_is_there_twice_is_refused(params, tmp_path):
    """YAML keeps the last one, and the parameters of the first would not count."""
    (tmp_path / "demo.yml").write_text("cdc_merge: {late_files: after}\nwarehouses: {}\ncdc_merge: {lane: merge}\n")
    with pytest.raises(ParameterError, match="demo.yml: not YAML: 'cdc_merge' is there twice, line 3, column 1"):
        resolve("cdc_merge", {})


def test_an_entry_of_a_spec_that_is_there_twice_is_refused(tmp_path):
    text = yaml.safe_dump(good() | {"exclude": ["n"]})
    (tmp_path / "t.yml").write_text(f"{text}exclude: [v]\n")
    with pytest.raises(SpecError, match="t.yml: not YAML: 'exclude' is there twice"):
        load_specs(tmp_path)


def test_a_value_that_is_named_once_and_used_twice_is_no_entry_twice(params, tmp_path):
    (tmp_path / "demo.yml").write_text("common: &all {parallel_tables: 3}\ncdc_merge: {<<: *all, parallel_tables: 4}\n")
    assert resolve("cdc_merge", {}).settings.parallel_tables == 4


def test_a_file_in_another_encoding_is_named(params, tmp_path):
    (tmp_path / "demo.yml").write_bytes("common: {source: Bücher}".encode("latin-1"))
    with pytest.raises(ParameterError, match="demo.yml: is not in UTF-8"):
        resolve("setup", {})


@pytest.mark.parametrize(("name", "value"), [("tables", {"a.b"}), ("runs", find_params), ("source", b"x")])
def test_a_value_that_no_parameter_takes_is_refused_and_not_passed_over(params, name, value):
    if callable(value):
        assert resolve("setup", {name: value}).settings.runs == "runs", "an import may have the name of a parameter"
        return
    with pytest.raises(ParameterError, match=f"{name}: a (set|bytes) is no value of a parameter"):
        resolve("setup", {name: value})


@pytest.mark.parametrize("name", ["max_batch_files", "max_batch_messages", "max_batch_mb", "index_limit_mb"])
def test_a_limit_below_the_smallest_is_refused(params, name):
    with pytest.raises(ParameterError, match=f"{name}: -1 should be greater than or equal to [01]"):
        resolve("cdc_merge", {name: -1})


def test_a_batch_of_no_file_is_refused(params):
    """`frazil plan` would never end, and a run would apply nothing."""
    with pytest.raises(ParameterError, match="max_batch_files: 0 should be greater than or equal to 1"):
        resolve("cdc_merge", {"max_batch_files": 0})


def test_resolving_again_in_a_used_kernel_takes_later_variables_but_no_near_misses(params):
    cell = {"parallel_tables": 3}
    resolve("setup", cell)
    cell |= {"results": [1], "n": 4, "parallel_tables": 5}
    assert resolve("setup", cell).settings.parallel_tables == 5
    cell["paralel_tables"] = 6
    with pytest.raises(ParameterError, match="did you mean 'parallel_tables'"):
        resolve("setup", cell)


def test_the_params_folder_is_looked_for_upwards(tmp_path, monkeypatch):
    monkeypatch.delenv("FRAZIL_PARAMS", raising=False)
    (tmp_path / "params").mkdir()
    (tmp_path / "a/b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a/b")
    assert find_params() == tmp_path / "params"
    monkeypatch.setenv("FRAZIL_PARAMS", str(tmp_path / "nowhere"))
    with pytest.raises(ParameterError, match="names no folder"):
        find_params()


def test_an_empty_path_is_an_error_only_when_it_is_needed(params):
    with pytest.raises(ParameterError, match="parameter 'source' is empty"):
        resolve("setup", {}).settings.path("source")


# --- table specs


def good() -> dict:
    return spec_of("public.t", "id INT8", "v WSTRING(9)", "n numeric(12,2)")


def test_a_spec_keeps_file_order_and_reads_types_in_any_case():
    spec = parse_spec(good())
    assert (spec.schema_name, spec.table_name, spec.names, spec.key) == ("public", "t", ["id", "v", "n"], ("id",))
    assert (spec.column("n").dms_type, spec.column("n").arguments) == ("NUMERIC", (12, 2))


def test_a_single_key_may_be_written_without_brackets_and_the_target_left_out():
    spec = parse_spec({**good(), "key": "v", "target": None})
    assert (spec.key, spec.target) == (("v",), "public.t")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"key": ["idd"]}, "key column 'idd' is not among the columns\n  cure: did you mean 'id'"),
        ({"columns": []}, "no columns"),
        ({"source": "t"}, "is not schema.table"),
        (
            {"columns": [{"name": "n", "type": "NUMERIC(8", "2)": None}]},
            "column 'n': '2\\)' is a part of another value\n  cure: put that value in quotes",
        ),
        ({"colums": []}, "unknown entry 'colums'\n  cure: did you mean 'columns'"),
        ({"columns": [{"name": "id", "type": "INT9"}]}, "unknown DMS type 'INT9'\n  cure: did you mean 'INT"),
        ({"columns": [{"name": "id", "type": "varchar(9)"}]}, "unknown DMS type"),
        ({"columns": [{"name": "id", "type": "NUMERIC"}]}, "no usable precision and scale"),
        ({"columns": [{"name": "id", "type": "NUMERIC(39,2)"}]}, "no usable precision and scale"),
        ({"columns": [{"name": "id", "type": "NUMERIC(4,5)"}]}, "no usable precision and scale"),
        ({"columns": [{"name": "id"}]}, "column 'id': no type\n  cure: write type: INT8"),
        (
            {"columns": ["id INT8"]},
            "columns: 'id INT8' is not of the form `name: value`\n  cure: write {name: order_id, type",
        ),
        ({"columns": [{"name": True, "type": "INT8"}]}, "name: True should be a valid string"),
        (
            {"columns": [{"name": "id", "type": "INT8", "utc": "yes"}]},
            "utc: 'yes' should be a valid boolean\n  cure: write utc: true",
        ),
        ({"columns": [{"name": "id", "type": "INT8", "nulable": True}]}, "did you mean 'nullable'"),
        ({"columns": [{"name": "id", "type": "INT8"}] * 2}, "is listed twice"),
    ],
)
def test_a_wrong_spec_is_refused(change, says):
    with pytest.raises(SpecError, match=says.replace("(", r"\(")):
        parse_spec({**good(), **change}, "specs/t.yml")


def test_a_refusal_names_the_file():
    with pytest.raises(SpecError, match="^specs/t.yml: "):
        parse_spec({**good(), "key": ["x"]}, "specs/t.yml")


def test_a_table_whose_files_would_be_inside_the_folder_of_another_is_refused(tmp_path):
    """Dropping the outer one, or removing its orphan files, would delete the files of the inner one."""
    for name, target in (("t", "shop.orders"), ("u", "shop.orders.items")):
        (tmp_path / f"{name}.yml").write_text(yaml.safe_dump({**good(), "source": f"public.{name}", "target": target}))
    with pytest.raises(SpecError, match=r"'shop.orders.items' would be inside the folder of 'shop.orders'"):
        load_specs(tmp_path)


def test_a_table_with_the_name_of_one_of_frazils_own_is_refused_alone(tmp_path):
    """The ledger would add its columns to the table, and no later batch could be applied."""
    world = World(tmp_path, "w", {}).table("t").table("u")
    (tmp_path / "specs/t.yml").write_text(yaml.safe_dump(world.specs["t"] | {"target": "mine.commits"}))
    problems = {name: spec.problem for name, spec in world.book(ops_namespace="mine").specs.items()}
    assert "'mine.commits' is the name of one of Frazil's own tables" in problems["public.t"].problem
    assert problems["public.u"] is None


def test_a_spec_may_end_in_yaml(tmp_path):
    (tmp_path / "t.yaml").write_text(yaml.safe_dump(good()))
    assert list(load_specs(tmp_path)) == ["public.t"]


def test_two_tables_with_one_target_are_refused(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.yml").write_text(
            yaml.safe_dump({**good(), "source": f"public.{name}", "target": "lake.same"})
        )
    with pytest.raises(SpecError, match=r"b\.yml: .* is also in .*a\.yml"):
        load_specs(tmp_path)


def test_a_folder_without_specs_is_refused(tmp_path):
    with pytest.raises(SpecError, match="no table specs"):
        load_specs(tmp_path)


# --- the session


@pytest.mark.spark
def test_the_session_runs_with_the_collector_that_was_chosen(spark):
    beans = spark._jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
    assert {bean.getName() for bean in beans} == {"PS MarkSweep", "PS Scavenge"}
