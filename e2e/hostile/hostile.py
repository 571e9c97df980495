#!/usr/bin/env python3
"""Forty things a hostile tenant tries. One function per row, named by its number; each shows that the
hostile action is refused (an error, or an Event on the tenant's object and nothing on the host) and
that the same action without the hostile part works.
  hostile.py [ROW ...]   all rows, or some. Rows that need a device are in e2e/gpu/run.sh."""
import concurrent.futures
import sys
import traceback

from common import report
import rows_end
import rows_gpu
import rows_identity
import rows_load
import rows_network
import rows_pods
from plain import Workplace

# Rows 37 and 38, and the files of row 34, need a device and a container.
GROUPS = [rows_pods, rows_identity, rows_network, rows_gpu, rows_load, rows_end]

VALUES_A = """
sync:
  toHost:
    ingresses: {enabled: true}
    networkPolicies: {enabled: true}
    pods: {hybridScheduling: {hostSchedulers: [host-scheduler]}}
  fromHost: {nodes: {selector: {labels: {pool: a}}}}
policies: {networkPolicy: {enabled: true}}
"""
VALUES_B = """
sync:
  toHost:
    ingresses: {enabled: true}
    priorityClasses: {enabled: true, max: 1000}
policies:
  gpu: {devices: 2}
  resourceQuota: {enabled: true, quota: {requests.cpu: 8, requests.memory: 20Gi}}
"""


def main(wanted):
    with Workplace() as place:
        host = place.host(3, "--gpus", "8")
        host.api.patch("/api/v1/nodes/sim-0", {"metadata": {"labels": {"pool": "a"}}})
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            a, b = [f.result() for f in [pool.submit(place.tenant, host, "a", VALUES_A),
                                         pool.submit(place.tenant, host, "b", VALUES_B)]]
        for name, row in [(n, f) for g in GROUPS for n, f in vars(g).items() if n.startswith("row")]:
            if wanted and name not in wanted:
                continue
            try:
                row(a, b, host, place)
            except Exception as error:  # a broken row is a failed one; the others still run
                report.check(name, False, "".join(traceback.format_exception(error))[-1200:])
            for control in (host, a, b):
                if control.child.poll() is not None:
                    report.check("%s survives %s" % (control.name, name), False,
                                 control.log()[-800:])
                    control.start()
    return report.close()


if __name__ == "__main__":
    sys.exit(main(["row" + r for r in sys.argv[1:]]))
