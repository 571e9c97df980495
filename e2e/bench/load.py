#!/usr/bin/env python3
"""The load test that vCluster publishes figures of, on one tenant: kube-burner's cases as plain requests
at a fixed rate, on plain processes with simulated nodes (e2e/tenants/plain.py). Beside each figure stands
the published one of vCluster with SQLite and of Kubernetes itself on other machines: a bar, not a race.
  load.py [--case NAME ...] [--churn-seconds S]      cases: see CASES; default: all, churn for 60 s
Asserts that nothing was lost, never a time."""
import argparse
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tenants"))
from plain import Report, Workplace, wait  # noqa: E402


class Load:
    """`per` objects in each of `spaces` namespaces, `rate` requests per second."""
    name = ""
    spaces, per, rate = 1, 1, 1
    workers = 8
    bar = ""  # published mean latencies

    def __init__(self, tenant):
        self.t = tenant
        self.seconds = []  # of each request
        self.lock = threading.Lock()

    def space(self, i):
        return "%s-%d" % (self.name.replace(" ", "-"), i)

    def prepare(self):
        for i in range(self.spaces):
            self.t.api.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace",
                                                   "metadata": {"name": self.space(i)}})
        account = "/api/v1/namespaces/%s/serviceaccounts/default"
        for i in range(self.spaces):
            wait(lambda i=i: self.t.api.get(account % self.space(i))[0] == 200)

    def paced(self, count, request):
        """request(n) for each n, at the rate; answers other than 200 and 201."""
        begin = time.monotonic() + 0.1
        refused = []

        def work(worker):
            for n in range(worker, count, self.workers):
                pause = begin + n / self.rate - time.monotonic()
                if pause > 0:
                    time.sleep(pause)
                at = time.monotonic()
                code, said = request(n)
                with self.lock:
                    self.seconds.append(time.monotonic() - at)
                    if code not in (200, 201):
                        refused.append((code, said))
        threads = [threading.Thread(target=work, args=(w,)) for w in range(self.workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return refused

    def run(self):
        """What is lost: empty when all is well."""
        self.prepare()
        self.begin = time.monotonic()
        refused = self.paced(self.spaces * self.per, lambda n: self.create(
            self.space(n % self.spaces), "o%d" % (n // self.spaces)))
        self.created = time.monotonic() - self.begin
        missing = self.missing()
        self.whole = time.monotonic() - self.begin
        left = self.clean()
        return [x for x in (refused[:3], missing, left) if x]

    def clean(self):
        for i in range(self.spaces):
            self.t.api.delete("/api/v1/namespaces/" + self.space(i))
        gone = lambda: all(self.t.api.get("/api/v1/namespaces/" + self.space(i))[0] == 404
                           for i in range(self.spaces))
        return "" if wait(gone, 60, 0.2) else "namespaces are left"

    def figures(self):
        ordered = sorted(self.seconds)
        mean = sum(ordered) / len(ordered)
        return "%d requests at %.0f/s: mean %.1f ms, p99 %.1f ms" % (
            len(ordered), self.spaces * self.per / self.created, mean * 1e3,
            ordered[int(len(ordered) * .99)] * 1e3)


class Secrets(Load):
    def create(self, space, name):
        return self.t.create("secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {
            "name": name}, "stringData": {"key": "v" * 64}}, space)

    def missing(self):
        there = sum(len(self.t.api.get("/api/v1/namespaces/%s/secrets" % self.space(i))[1]["items"])
                    for i in range(self.spaces))
        return "" if there == self.spaces * self.per else "%d Secrets are there" % there


class SecretsBaseline(Secrets):
    name, spaces, per, rate = "secrets baseline", 10, 30, 30
    bar = "mean 170 ms with SQLite, 50 ms the others"


class SecretsIntensive(Secrets):
    name, spaces, per, rate = "secrets intensive", 10, 500, 200
    bar = "mean 1,400 ms with SQLite, 150 ms Kubernetes"


class Deployments(Load):
    def create(self, space, name):
        labels = {"app": name}
        return self.t.create("deployments", {
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
                "replicas": 1, "selector": {"matchLabels": labels}, "template": {
                    "metadata": {"labels": labels}, "spec": {
                        "terminationGracePeriodSeconds": 0, "containers": [{
                            "name": "pause", "image": "example/pause:1", "resources": {
                                "requests": {"cpu": "10m", "memory": "10M"}}}]}}}},
            space, "/apis/apps/v1")

    def available(self):
        return sum(d.get("status", {}).get("availableReplicas", 0) == 1
                   for i in range(self.spaces) for d in self.t.api.get(
                       "/apis/apps/v1/namespaces/%s/deployments" % self.space(i))[1]["items"])

    def missing(self):
        wanted = self.spaces * self.per
        return "" if wait(lambda: self.available() == wanted, 120, 0.1) else \
            "%d Deployments are available" % self.available()


class PodsBaseline(Deployments):
    name, spaces, per, rate = "pods baseline", 5, 20, 50


class PodsIntensive(Deployments):
    name, spaces, per, rate = "pods intensive", 10, 100, 100


class Churn(Deployments):
    """A fifth of the Deployments deleted and made again, every `delay` seconds."""
    name, spaces, per, rate = "churn", 5, 20, 50
    seconds_max, delay = 60, 15

    def missing(self):
        end = time.monotonic() + self.seconds_max
        part = max(1, self.per // 5)
        at = 0
        while True:
            wrong = super().missing()
            if wrong or time.monotonic() > end:
                return wrong
            victims = [(self.space(i), "o%d" % ((at + k) % self.per))
                       for i in range(self.spaces) for k in range(part)]
            at += part
            for space, name in victims:
                self.t.api.delete("/apis/apps/v1/namespaces/%s/deployments/%s" % (space, name))
            refused = self.paced(len(victims), lambda n: self.create(*victims[n]))
            if refused:
                return refused[:3]
            time.sleep(min(self.delay, max(0, end - time.monotonic())))


class ChurnShort(Churn):
    seconds_max, delay = 6, 2


CASES = [SecretsBaseline, SecretsIntensive, PodsBaseline, PodsIntensive, Churn]
SMALL = [SecretsBaseline, PodsBaseline, ChurnShort]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", action="append", choices=[c.name for c in CASES])
    parser.add_argument("--churn-seconds", type=int, default=60)
    options = parser.parse_args()
    Churn.seconds_max = options.churn_seconds
    report = Report()
    with Workplace() as place:
        host = place.host(20, "--pods", "500")
        tenant = place.tenant(host, "load")
        for case in CASES:
            if options.case and case.name not in options.case:
                continue
            load = case(tenant)
            before = tenant.cpu_seconds()
            lost = load.run()
            spent = tenant.cpu_seconds() - before
            report.check("%s: nothing lost" % case.name, not lost, lost)
            print("%-18s %s; all there after %.1f s; tenant: %.2f s of CPU, PSS %.1f MiB   %s" % (
                case.name, load.figures(), load.whole, spent, tenant.status_kib("Pss") / 1024,
                ("published: " + case.bar) if case.bar else ""), flush=True)
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
