#!/usr/bin/env python3
"""What of `sublet create` takes how long, on the embedded host that is up: one tenant after the other is
made, used once and (unless --keep) deleted. The times are seen from outside, by watches on the host.
  create_phases.py [--count N] [--keep]
Needs SUBLET_BIN, SUBLET_CLIENTS and the host's context in $KUBECONFIG. Prints a table; asserts no time."""
import argparse
import base64
import http.client
import json
import os
import re
import shutil
import ssl
import subprocess
import tempfile
import threading
import time

BIN = os.environ["SUBLET_BIN"]
KUBECTL = os.path.join(os.environ["SUBLET_CLIENTS"], "kubectl-1.36")
PHASES = ["host objects applied", "pod made", "pod bound", "sandbox runs", "check ended",
          "server started", "server Ready", "access published", "create ended", "kubectl answered"]


def host_api():
    text = subprocess.run([KUBECTL, "config", "view", "--raw", "--minify", "--context=sublet-host"],
                          check=True, capture_output=True, text=True).stdout
    get = lambda key: re.search(key + r":\s*\"?([^\s\"]+)", text).group(1)
    folder = tempfile.mkdtemp(prefix="sublet-phases-")
    for name in ("client-certificate-data", "client-key-data"):
        with open(os.path.join(folder, name), "wb") as out:
            out.write(base64.b64decode(get(name)))
    context = ssl.create_default_context(
        cadata=base64.b64decode(get("certificate-authority-data")).decode())
    context.check_hostname = False
    context.load_cert_chain(*(os.path.join(folder, n) for n in ("client-certificate-data",
                                                                "client-key-data")))
    shutil.rmtree(folder)
    address = get("server").split("//")[1]
    return lambda: http.client.HTTPSConnection(address, context=context)


class Watch(threading.Thread):
    """Gives every event of one collection to `note`, with the moment it came."""

    def __init__(self, connect, path, note):
        super().__init__(daemon=True)
        self.note, self.ready = note, threading.Event()
        self.connection, self.path = connect(), path

    def run(self):
        self.connection.request("GET", self.path + "&watch=1&timeoutSeconds=60")
        answer = self.connection.getresponse()
        self.ready.set()
        for text in iter(answer.readline, b""):
            self.note(json.loads(text)["object"], time.monotonic())


class Trace:
    def __init__(self, connect, name):
        self.at, self.name = {}, name
        space = "/api/v1/namespaces/sublet-" + name
        self.watches = [Watch(connect, space + "/pods?", self.pod),
                        Watch(connect, space + "/secrets?fieldSelector=metadata.name=sublet-" + name,
                              lambda _, now: self.mark("access published", now)),
                        Watch(connect, "/apis/apps/v1/namespaces/sublet-%s/statefulsets?" % name,
                              lambda _, now: self.mark("host objects applied", now))]
        for watch in self.watches:
            watch.start()
            watch.ready.wait(10)

    def mark(self, phase, now=None):
        self.at.setdefault(phase, now or time.monotonic())

    def pod(self, pod, now):
        status = pod.get("status", {})
        self.mark("pod made", now)
        if pod["spec"].get("nodeName"):
            self.mark("pod bound", now)
        if status.get("podIP"):
            self.mark("sandbox runs", now)
        if any("terminated" in c["state"] for c in status.get("initContainerStatuses", [])):
            self.mark("check ended", now)
        if any("running" in c["state"] for c in status.get("containerStatuses", [])):
            self.mark("server started", now)
        if any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", [])):
            self.mark("server Ready", now)


def run(connect, name, keep):
    trace = Trace(connect, name)
    begin = time.monotonic()
    done = subprocess.run([BIN, "create", name], capture_output=True, text=True)
    trace.mark("create ended")
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    subprocess.run([KUBECTL, "get", "namespace", "default"], check=True, capture_output=True)
    trace.mark("kubectl answered")
    time.sleep(0.3)  # the last events
    if not keep:
        subprocess.run([BIN, "delete", name], check=True, capture_output=True)
    return {phase: (trace.at[phase] - begin) * 1e3 for phase in PHASES if phase in trace.at}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    connect = host_api()
    runs = [run(connect, "p%d" % i, options.keep) for i in range(options.count)]
    print("%-24s %s" % ("ms since the start", "".join("%9s" % ("create %d" % (i + 1))
                                                      for i in range(len(runs)))))
    for phase in PHASES:
        print("%-24s %s%s" % (phase, "".join("%9.0f" % one.get(phase, float("nan")) for one in runs),
                              "   aim < 1000" if phase == PHASES[-1] else ""))


if __name__ == "__main__":
    main()
