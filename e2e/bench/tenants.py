#!/usr/bin/env python3
"""What a tenant costs, on plain processes with simulated nodes (e2e/tenants/plain.py): memory and CPU
of idle tenants, virtual pod -> host pod -> status latency at fixed rates, deletion of a full tenant.
  tenants.py [--idle N] [--rates 100,500] [--seconds S]
Prints figures and their aims; asserts that nothing was lost, never a time."""
import argparse
import json
import os
import re
import resource
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tenants"))
from plain import BIN, Report, Workplace, pod, wait  # noqa: E402

report = Report()
NAME = re.compile(rb'"name":"(p[0-9]+[^"]*)"')  # the pods that latency() makes


def line(what, value, aim):
    print("%-58s %-34s aim %s" % (what, value, aim), flush=True)


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def idle(place, host, count):
    tenants = [place.tenant(host, "idle-%d" % i) for i in range(count)]
    time.sleep(8)  # what starts has ended
    before = [t.cpu_seconds() for t in tenants]
    begin = time.monotonic()
    time.sleep(20)
    spent = time.monotonic() - begin
    cpu = [(t.cpu_seconds() - b) / spent * 100 for t, b in zip(tenants, before)]
    pss = [t.status_kib("Pss") / 1024 for t in tenants]
    line("PSS of %d idle tenants, mean / worst" % count,
         "%.1f / %.1f MiB" % (sum(pss) / count, max(pss)), "< 15 MiB")
    line("CPU of an idle tenant, mean / worst",
         "%.3f / %.3f %% of a core" % (sum(cpu) / count, max(cpu)), "< 0.05 %")
    for tenant in tenants:
        tenant.stop()
        place.started.remove(tenant)


class Watcher(threading.Thread):
    """Notes when each pod of a namespace was first seen at all and first seen Running."""

    def __init__(self, api, path, name_of):
        super().__init__(daemon=True)
        self.api, self.path, self.name_of = api, path, name_of
        self.seen, self.running = {}, {}
        self.ready = threading.Event()

    def run(self):
        import http.client
        connection = http.client.HTTPSConnection(self.api.host, self.api.port,
                                                 context=self.api.context())
        connection.request("GET", self.path + "?watch=1&timeoutSeconds=300")
        answer = connection.getresponse()
        self.ready.set()
        while True:
            text = answer.readline()
            if not text:
                return
            now = time.monotonic()
            # Not parsed: this client shares the processors with what it measures.
            found = NAME.search(text)
            if found is None or text.startswith(b'{"type":"DELETED"'):
                continue
            name = self.name_of(found.group(1).decode())
            self.seen.setdefault(name, now)
            if b'"phase":"Running"' in text:
                self.running.setdefault(name, now)


def own_cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def latency(place, host, rate, seconds):
    tenant = place.tenant(host, "rate-%d" % rate)
    suffix = "-x-default-x-" + tenant.tenant
    virtual = Watcher(tenant.api, "/api/v1/namespaces/default/pods", lambda n: n)
    there = Watcher(host.api, "/api/v1/namespaces/%s/pods" % tenant.hns,
                    lambda n: n.removesuffix(suffix))
    for watcher in (virtual, there):
        watcher.start()
        watcher.ready.wait(10)
    count = rate * seconds
    workers = 4
    parts = {"tenant": tenant, "host": host, "nodes": host.nodes[0]}
    spent_before = {name: part.cpu_seconds() for name, part in parts.items()}
    spent_before["client"] = own_cpu()
    begin = time.monotonic() + 0.2

    def create(worker):
        for i in range(worker, count, workers):
            pause = begin + i / rate - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            # Bound at birth: this measures the syncer, not the scheduler.
            tenant.create("pods", pod("p%d" % i, nodeName="sim-%d" % (i % len_nodes)))
    threads = [threading.Thread(target=create, args=(w,)) for w in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = time.monotonic() - begin
    wait(lambda: len(virtual.running) >= count, 60)
    report.check("%d pods at %d/s: all run, none twice" % (count, rate),
                 len(virtual.running) == count and len(there.seen) == count,
                 (len(virtual.running), len(there.seen)))
    down = [there.seen[n] - virtual.seen[n] for n in virtual.seen if n in there.seen]
    up = [virtual.running[n] - there.running[n] for n in virtual.running if n in there.running]
    whole = [there.seen[n] - virtual.seen[n] + virtual.running[n] - there.running[n]
             for n in virtual.running if n in there.running]
    line("sync at %d pods/s (done %.0f/s): virtual -> host, p50/p99" % (rate, count / spent),
         "%.1f / %.1f ms" % (percentile(down, .5) * 1e3, percentile(down, .99) * 1e3), "")
    line("   host -> status, p50/p99",
         "%.1f / %.1f ms" % (percentile(up, .5) * 1e3, percentile(up, .99) * 1e3), "")
    line("   both, p50/p99", "%.1f / %.1f ms" % (percentile(whole, .5) * 1e3,
                                                 percentile(whole, .99) * 1e3), "p99 < 20 ms")
    spent_now = {name: part.cpu_seconds() for name, part in parts.items()} | {"client": own_cpu()}
    line("   CPU per pod", ", ".join("%s %.1f ms" % (
        name, (spent_now[name] - spent_before[name]) / count * 1e3) for name in spent_now), "")
    tenant.stop()
    place.started.remove(tenant)


def delete(place, host):
    tenant = place.tenant(host, "full")
    for i in range(20):
        tenant.create("pods", pod("p%d" % i))
    for i in range(1000):
        tenant.create("configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "c%d" % i, "annotations": {"sublet.dev/force-sync": "true"}},
            "data": {"x": "y"}})
    host_path = "/api/v1/namespaces/%s/configmaps" % tenant.hns
    wait(lambda: len(host.api.get(host_path)[1]["items"]) >= 1000, 60, 0.2)
    wait(lambda: sum(p["status"].get("phase") == "Running"
                     for p in host.pods(tenant.hns).values()) >= 20)
    environment = {**os.environ, "KUBECONFIG": host.kubeconfig, "HOME": host.work}
    begin = time.monotonic()
    done = subprocess.run([BIN, "delete", "full"], env=environment, capture_output=True, text=True)
    spent = time.monotonic() - begin
    report.check("delete leaves nothing", done.returncode == 0 and
                 host.api.get("/api/v1/namespaces/" + tenant.hns)[0] == 404, done.stderr)
    line("delete of a tenant, 20 simulated pods and 1,000 objects", "%.2f s" % spent, "< 1 s")
    tenant.stop()


def main():
    global len_nodes
    parser = argparse.ArgumentParser()
    parser.add_argument("--idle", type=int, default=20)
    parser.add_argument("--rates", default="100,500")
    parser.add_argument("--seconds", type=int, default=5)
    options = parser.parse_args()
    len_nodes = 30
    with Workplace() as place:
        host = place.host(len_nodes, "--pods", "500")
        if options.idle:
            idle(place, host, options.idle)
        for rate in [int(r) for r in options.rates.split(",") if r]:
            latency(place, host, rate, options.seconds)
        delete(place, host)
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
