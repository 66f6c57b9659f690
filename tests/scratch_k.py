import time
import pytest
import test_faults as t
from test_faults import *
stage = t.stage
pytestmark=[pytest.mark.spark]
def test_k(stage):
    old=(Trial.run, Process.results, Trial.prepare, Trial.differences)
    def timed(name,f):
        def g(*a,**k):
            t0=time.time(); c0=time.process_time()
            try: return f(*a,**k)
            finally: print(f"   {name} {a[1:2]} {time.time()-t0:.1f} py-cpu {time.process_time()-c0:.1f}", flush=True)
        return g
    Trial.run=timed("run",Trial.run); Process.results=timed("results",Process.results); Trial.differences=timed("diff",Trial.differences)
    try: killed(stage,3,"maintain",(0,"commits","after"))
    finally: Trial.run, Process.results, Trial.prepare, Trial.differences=old
    print(len(stage.catalog.requests))
