"""Full load: the new house, plain Spark into an Iceberg table, the old house. `bench.py DATA TURNS WAY…` (FRAZIL_MASTER, PARTITION)."""
import json, os, shutil, sys, time, resource
from pathlib import Path
from statistics import median
import psutil, yaml
data, turns, ways = Path(sys.argv[1]).absolute(), int(sys.argv[2]), sys.argv[3:]
os.environ.setdefault("FRAZIL_MASTER", "local[2]")
root = Path(os.environ.get("ROOT", "/tmp/hF-bench/world")).absolute()
shutil.rmtree(root, ignore_errors=True)
TYPES = {"id": ("INT8", "bigint"), "cust": ("INT4", "int"), "qty": ("INT4", "int"), "price": ("NUMERIC(12,2)", "decimal(12,2)"), "amount": ("NUMERIC(12,2)", "decimal(12,2)"), "placed": ("DATETIME", "timestamp_ntz"), "status": ("STRING(10)", "string"), "note": ("STRING(20)", "string"), "day": ("DATE", "date"), "weight": ("REAL8", "double"), "kind": ("INT4", "int"), "descr": ("STRING(100)", "string")}
def table(name):
    folder = root / "source/public" / name
    folder.mkdir(parents=True)
    for f in sorted(data.glob("LOAD*")):
        os.link(f, folder / f.name)
    spec = {"source": f"public.{name}", "key": ["id"], "columns": [{"name": n, "type": t[0]} for n, t in TYPES.items()]}
    if os.environ.get("PARTITION"): spec["partition"] = [os.environ["PARTITION"]]
    (root / "declared").mkdir(exist_ok=True)
    (root / f"declared/{name}.yml").write_text(yaml.safe_dump(spec))
(root / "params").mkdir(parents=True)
(root / "endpoint.json").write_text(json.dumps({"S3Settings": {"TimestampColumnName": "ts", "CsvNullValue": "NULL"}}))
opts = {"type": "jdbc", "uri": f"jdbc:sqlite:{root}/catalog.db", "warehouse": f"{root}/warehouse"}
(root / "params/w.yml").write_text(yaml.safe_dump({"source": "source", "specs": "declared", "endpoint": "endpoint.json", "catalog": "lake", "catalog_options": opts, "spark_options": {"spark.driver.memory": "3g", **json.loads(os.environ.get("SPARK_OPTIONS", "{}"))}}))
os.environ["FRAZIL_PARAMS"] = str(root / "params")
for t in range(turns + 1):
    for w in ways: table(f"{w}{t}")
from frazil.pipeline import lake as lakes
def opened(name): return lakes.open("01_full_load", "w", tables=[f"public.{name}"])
first = opened(f"{ways[0]}0"); spark = first.spark
spark.sql("create namespace if not exists lake.public")
me = psutil.Process()
seen = {}
def look():
    procs = [me, *me.children(recursive=True)]
    for p in json.loads(os.environ.get("ALSO", "[]")):
        try: procs += [psutil.Process(p), *psutil.Process(p).children(recursive=True)]
        except psutil.Error: pass
    for p in procs:
        try:
            t, m = p.cpu_times(), p.memory_info().rss
            seen[p.pid, p.create_time()] = t.user + t.system
            if p.pid != me.pid and "python" in p.name(): peak[0] = max(peak[0], m)
        except psutil.Error: pass
peak = [0]
import threading
def watch():
    while True: look(); time.sleep(0.2)
threading.Thread(target=watch, daemon=True).start()
def cpu():
    look(); return sum(seen.values())
def timed(work):
    c, w = cpu(), time.perf_counter(); work(); return time.perf_counter() - w, cpu() - c
def new(t):
    lake = opened(f"new{t}"); lake.say = lambda s: None; lake.setup()
    out = []
    took = timed(lambda: out.extend(lake.load()))
    assert out[0].status == "loaded", out
    return took
def here(t): return forced(t, "here", 1 << 50)
def tasks(t): return forced(t, "tasks", 0)
def forced(t, way, border):
    from frazil.pipeline import load
    before, load.HERE = load.HERE, border
    globals()["new"].__globals__
    lake = opened(f"{way}{t}"); lake.say = lambda s: None; lake.setup(); out = []
    took = timed(lambda: out.extend(lake.load()))
    load.HERE = before
    assert out[0].status == "loaded", out
    return took
def plain(t):
    by = f"partitioned by ({os.environ['PARTITION']})" if os.environ.get("PARTITION") else ""
    cols = ", ".join(f"{n} {k[1]}" for n, k in TYPES.items())
    spark.sql(f"create table lake.public.plain{t} ({cols}) using iceberg {by} tblproperties ('format-version'='3')")
    def work():
        df = spark.read.schema("ts string, " + cols).option("nullValue", "NULL").option("timestampNTZFormat", "yyyy-MM-dd HH:mm:ss.SSSSSS").csv(str(root / f"source/public/plain{t}")).drop("ts")
        df.writeTo(f"lake.public.plain{t}").append()
    return timed(work)
def old(t):
    from frazil_old.flows import full_load, setup
    from frazil_old.flows.workbook import Workbook
    from frazil_old.config.settings import resolve
    def book(nb): return Workbook(resolve(nb, {"env": "w", "tables": [f"public.old{t}"]}).settings, lambda s: None)
    setup.create_tables(book("setup"))
    b = book("full_load"); out = []
    took = timed(lambda: out.extend(full_load.run(b)))
    assert out[0].status == "loaded", out
    return took
found = {w: [] for w in ways}
for t in range(turns + 1):
    for w in (ways if t % 2 else ways[::-1]):
        os.sync(); time.sleep(1)
        found[w].append(globals()[w](t))
        n = spark.table(f"lake.public.{w}{t}").count() if t == 0 else ""
        print("peak python child MB %.0f" % (peak[0]/1e6), end=" "); peak[0]=0; print(t, w, "wall %.2f cpu %.2f" % found[w][-1], n, flush=True)
        if t: 
            shutil.rmtree(root / f"warehouse/public/{w}{t}", ignore_errors=True)
for w in ways:
    print(w, "median wall %.2f cpu %.2f" % (median(a for a, _ in found[w][1:]), median(b for _, b in found[w][1:])), "files", len(list((root / f"warehouse/public/{w}0/data").rglob("*.parquet"))), "MB %.0f" % (sum(f.stat().st_size for f in (root / f"warehouse/public/{w}0/data").rglob("*.parquet"))/1e6))
spark.stop()
