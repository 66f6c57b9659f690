"""Run in a process of its own by test_executor_loss: two executors, one killed after its first task of each batch's first job."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import psutil
import yaml

from helpers import D, I, U, World
from lake_reader import lake_rows

FILES, ROWS = 8, 2_500


class Killer(threading.Thread):
    """Kill the first executor that ends a task; stop the other meanwhile, so that its task is still running."""

    def __init__(self, spark):
        super().__init__(daemon=True)
        self.store, self.killed = spark.sparkContext._jsc.sc().statusStore(), False
        self.app = spark.sparkContext.applicationId
        self.before = self.ended()

    def ended(self) -> dict[str, int]:
        listed = self.store.executorList(True)
        executors = [listed.apply(i) for i in range(listed.size())]
        return {e.id(): e.completedTasks() for e in executors if e.id() != "driver"}

    def run(self):
        while not self.killed:
            for executor, count in self.ended().items():
                if count > self.before.get(executor, 0):
                    self.kill(executor)
                    return
            time.sleep(0.005)

    def kill(self, executor: str):
        others = []
        for process in psutil.process_iter(["cmdline"]):
            line = process.info["cmdline"] or []
            if "--executor-id" in line and self.app in line:
                if line[line.index("--executor-id") + 1] == executor:
                    victim = process
                else:
                    others.append(process)
        for other in others:
            os.kill(other.pid, signal.SIGSTOP)
        os.kill(victim.pid, signal.SIGKILL)
        while executor in self.ended():
            time.sleep(0.05)
        for other in others:
            os.kill(other.pid, signal.SIGCONT)
        self.killed = True


def main(folder: Path) -> None:
    lake = folder / "lake"
    options = {"type": "jdbc", "uri": f"jdbc:sqlite:{lake}/catalog.db", "warehouse": f"{lake}/warehouse"}
    lake.mkdir()
    w = World(folder / "world", "shop", options)
    # Each file is a task of its own.
    w.given = {
        "spark_options": {
            "spark.sql.files.openCostInBytes": str(256 << 20),
            "spark.ui.liveUpdate.period": "0",
            "spark.driver.memory": "1g",
        }
    }
    told = {}
    for table in ("plain", "aside"):
        w.table(table, "id INT8", "n INT8").load(table, *[(i, 0) for i in range(FILES * ROWS)])
    spec = {**w.specs["aside"], "on_bad_rows": "quarantine"}
    (w.root / "specs/aside.yml").write_text(yaml.safe_dump(spec))
    w.loaded()
    for table in ("plain", "aside"):
        for number in range(FILES):
            keys = range(number * ROWS, (number + 1) * ROWS)
            changes = [D(k) if k % 10 == 1 else U(k, "bad" if table == "aside" and k % 100 == 5 else 1) for k in keys]
            w.changes(table, *changes, I(10**6 + number, 1), name=f"20240101-10000{number}000.csv")
        killer = Killer(w.spark)
        killer.start()
        (result,) = w.merge(tables=[f"public.{table}"], lane="merge").values()
        killer.join(60)
        told[table] = {
            "killed": killer.killed, "status": result.status, "note": result.note, "counts": result.counts,
            "summary": json.loads(w.history(table)[0].summary()["frazil.counts"]),
            "rows": len(lake_rows(options, f"shop.{table}")),
        }  # fmt: skip
    told["quarantine"] = w.spark.table(w.book().ops("quarantine")).count()
    (folder / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
