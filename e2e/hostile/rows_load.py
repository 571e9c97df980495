"""Too large, too many, too deep, too long: requests, schemas, watches, a flood, a full disk."""
import json
import os
import socket
import subprocess
import threading
import time

from common import APPLY, JSON_PATCH, NS, report
from plain import Api, Serving, free_port, pod, wait


def row27(a, b, host, place):
    def rss():
        return a.status_kib("VmRSS")
    before = rss()
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"}}
    cases = [
        ("3 MiB of data", lambda: a.create("configmaps", {**config, "data": {"x": "y" * (3 << 20)}})),
        ("4 MiB body", lambda: a.create("configmaps", {**config, "data": {"x": "y" * (4 << 20)}})),
        ("100,000 keys", lambda: a.create("configmaps", {
            **config, "data": {"key-%d" % i: "0123456789" for i in range(100000)}})),
        ("10,000-deep nesting", lambda: a.api.call("POST", NS + "configmaps",
                                                   '{"a":' * 10000 + "1" + "}" * 10000)),
        ("10,000-deep arrays", lambda: a.api.call("POST", NS + "configmaps",
                                                  "[" * 10000 + "]" * 10000)),
        ("YAML aliases that multiply", lambda: a.api.call(
            "PATCH", NS + "configmaps/bomb?fieldManager=x&force=true",
            "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
                "%s: &%s [%s]\n" % (chr(98 + i), chr(98 + i), ",".join(["*" + chr(97 + i)] * 9))
                for i in range(9)), APPLY)),
    ]
    for name, act in cases:
        begin = time.monotonic()
        code, said = act()
        report.check("27 %s" % name, 400 <= code < 500, (code, str(said)[:300]))
        print("      answered %d after %d ms" % (code, (time.monotonic() - begin) * 1000))
    a.create("configmaps", {**config, "metadata": {"name": "seed"}, "data": {"k": "v" * 1000}})
    copies = [{"op": "copy", "from": "/data", "path": "/x%d" % i} for i in range(2)]
    doubling = [{"op": "add", "path": "/data/d", "value": {"v": "x" * 1000}}] + [
        {"op": "copy", "from": "/data", "path": "/data/c%d" % i} for i in range(40)]
    code, said = a.api.patch(NS + "configmaps/seed", doubling, JSON_PATCH)
    report.check("27 a JSON patch that doubles 40 times", 400 <= code < 500, (code, str(said)[:300]))
    report.check("27 memory is bounded", rss() - before < 200 << 10, (before, rss()))
    code, said = a.create("configmaps", {**config, "metadata": {"name": "fine"},
                                         "data": {"k%d" % i: "v" for i in range(1000)}})
    report.check("27 a large but sensible object works", code == 201 and len(copies) == 2, code)


def row28(a, b, host, place):
    before = a.status_kib("VmRSS")
    held = []

    def dial():
        sock = socket.create_connection(("127.0.0.1", a.port), 10)
        sock.sendall(b"\x16")  # the first byte of a handshake, and then nothing for long
        held.append(sock)
    count = 2000
    try:
        for _ in range(count):
            dial()
    except OSError:
        pass  # a limit that refuses is as good as one that waits
    watches = []
    tls = a.api.context()
    for i in range(300):
        try:
            sock = tls.wrap_socket(socket.create_connection(("127.0.0.1", a.port), 10))
            sock.sendall(b"GET /api/v1/configmaps?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n")
            watches.append(sock)
        except OSError:
            break
    for i in range(200):  # 12 MiB of events to watchers that never read
        a.api.patch(NS + "configmaps/fine", {"data": {"fill": ("%d" % i) * 20000}})
    code, _ = a.api.get("/api/v1/namespaces")
    fresh = Api(a.api.url, a.api.ca, cert=a.api.cert, key=a.api.key)
    begin = time.monotonic()
    new, _ = fresh.get("/api/v1/namespaces")
    report.check("28 other clients are served", code == 200 and new == 200, (code, new))
    grown = a.status_kib("VmRSS") - before
    print("      %d half-open connections, %d deaf watches, a new client after %d ms, +%d KiB" % (
        len(held), len(watches), (time.monotonic() - begin) * 1000, grown))
    report.check("28 memory is bounded", grown < 400 << 10, grown)
    for sock in held + watches:
        sock.close()
    code, _ = a.api.get("/api/v1/namespaces/default")
    report.check("28 and afterwards", code == 200, code)


def crd(plural, schema, kind="Thing"):
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": plural + ".evil.example"},
            "spec": {"group": "evil.example", "scope": "Namespaced",
                     "names": {"plural": plural, "singular": plural[:-1], "kind": kind},
                     "versions": [{"name": "v1", "served": True, "storage": True,
                                   "schema": {"openAPIV3Schema": schema}}]}}


def row29(a, b, host, place):
    group = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    before = a.status_kib("VmRSS")
    levels = 3000
    text = json.dumps(crd("deeps", "DEEP", "Deep")).replace(
        '"DEEP"', '{"type": "object", "properties": {"a": ' * levels + '{"type": "string"}' +
        "}}" * levels)
    code, said = a.api.post(group, text)
    report.check("29 a 3,000-deep schema", 400 <= code < 500 or code == 201, (code, str(said)[:200]))
    wide = {"type": "object", "properties": {"p%d" % i: {"type": "string"} for i in range(60000)}}
    code, said = a.api.post(group, crd("wides", wide, "Wide"))
    report.check("29 a schema of 60,000 properties", 400 <= code < 500 or code == 201,
                 (code, str(said)[:200]))
    loop = {"type": "object", "properties": {"x": {"$ref": "#"}}}
    code, said = a.api.post(group, crd("loops", loop, "Loop"))
    report.check("29 a recursive schema", 400 <= code < 500, (code, str(said)[:300]))
    slow = {"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "x": {"type": "string", "pattern": "^(a+)+$"}}}}}
    code, said = a.api.post(group, crd("slows", slow, "Slow"))
    path = "/apis/evil.example/v1/namespaces/default/slows"
    wait(lambda: a.api.get(path)[0] == 200)
    begin = time.monotonic()
    code, said = a.api.post(path, {"apiVersion": "evil.example/v1", "kind": "Slow",
                                   "metadata": {"name": "s"}, "spec": {"x": "a" * 50000 + "!"}})
    spent = time.monotonic() - begin
    report.check("29 a catastrophic pattern ends", 400 <= code < 500 and spent < 5, (code, spent))
    code, said = a.api.post(path, {"apiVersion": "evil.example/v1", "kind": "Slow",
                                   "metadata": {"name": "s"}, "spec": {"x": "aaa"}})
    report.check("29 a plain object of it works", code == 201, (code, said))
    report.check("29 memory is bounded", a.status_kib("VmRSS") - before < 300 << 10,
                 (before, a.status_kib("VmRSS")))
    for name in ("deeps", "wides", "slows"):
        a.api.delete(group + "/" + name + ".evil.example")


def row30(a, b, host, place):
    """A tenant on a small disk; needs root for the mount, which is this process's own."""
    if os.geteuid() != 0:
        return report.skip("30 a full disk", "not root")
    small = os.path.join(place.work, "small")
    os.makedirs(small)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", small]).returncode:
        return report.skip("30 a full disk", "cannot mount")
    full = Serving("full", small, ["--listen", "127.0.0.1:%d" % free_port()])
    try:
        full.start()
        wait(lambda: full.api.get("/api/v1/namespaces/default")[0] == 200)
        code = 201
        count = 0
        said = ""
        while code == 201 and count < 3000:
            code, said = full.api.post(NS + "configmaps", {
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c%d" % count},
                "data": {"x": "y" * 20000}})
            count += 1
        report.check("30 a full disk is said", code in (503, 507, 429, 500) and
                     any(w in str(said).lower() for w in ("full", "space")), (count, code, said))
        report.check("30 reads still serve", full.api.get(NS + "configmaps/c0")[0] == 200)
        freed = [full.api.delete(NS + "configmaps/c%d" % i)[0] for i in range(3)]
        report.check("30 the process lives", full.child.poll() is None, freed)
    finally:
        full.stop()
        subprocess.run(["umount", small])
    report.check("30 the host and others go on", host.api.get("/readyz")[0] == 200 and
                 b.api.get("/readyz")[0] == 200)


def row31(a, b, host, place):
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}
    owners = [{**owner, "uid": "uid-%d" % i} for i in range(60000)]
    code, said = a.create("configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "owned", "ownerReferences": owners}})
    report.check("31 60,000 owner references", 400 <= code < 500, (code, str(said)[:200]))
    a.create("configmaps", {"apiVersion": "v1", "kind": "ConfigMap",
                            "metadata": {"name": "managed"}})
    sizes = []
    for i in range(400):
        code, said = a.api.patch(NS + "configmaps/managed?fieldManager=" + "m%d" % i,
                                 {"data": {"k%d" % i: "v"}})
        if code != 200:
            break
        sizes.append(len(said["metadata"].get("managedFields", [])))
    report.check("31 managers do not grow without end", max(sizes) <= 50, max(sizes))
    code, said = a.create("configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "owned", "ownerReferences": owners[:10]}})
    report.check("31 ten owners work", code == 201, (code, said))


def row32(a, b, host, place):
    def one(name):
        begin = time.monotonic()
        b.create("pods", pod(name, container={"resources": {"limits": {
            "cpu": "10m", "memory": "16Mi"}}}))
        good = wait(lambda: (b.pod(name) or {}).get("status", {}).get("phase") == "Running", 20,
                    0.002)
        spent = time.monotonic() - begin
        b.api.delete(NS + "pods/" + name)
        return spent if good else None
    quiet = [one("quiet-%d" % i) for i in range(15)]
    stop = threading.Event()
    count = [0]

    def flood(worker):
        i = 0
        while not stop.is_set():
            name = "flood-%d-%d" % (worker, i)
            a.create("pods", pod(name))
            a.api.delete(NS + "pods/" + name + "?gracePeriodSeconds=0")
            count[0] += 1
            i += 1
    threads = [threading.Thread(target=flood, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    begin = time.monotonic()
    busy = [one("busy-%d" % i) for i in range(15)]
    stop.set()
    spent = time.monotonic() - begin
    for thread in threads:
        thread.join()
    report.check("32 another tenant's pods run during a flood", None not in busy, busy)
    if None not in busy + quiet:
        print("      %d creates and deletes a second; another tenant's pod runs after %d ms (median)"
              " quiet, %d ms flooded" % (count[0] / spent, sorted(quiet)[7] * 1000,
                                         sorted(busy)[7] * 1000))
    report.check("32 the flood leaves nothing behind", wait(
        lambda: not [n for n in host.pods("sublet-a") if n.startswith("flood-")], 60))
