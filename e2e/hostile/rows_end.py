"""A tenant that will not go, and a state file of its own making."""
import os
import sqlite3
import subprocess

from common import NS, report
from plain import BIN, Serving, pod, wait


def row26(a, b, host, place):
    d = place.tenant(host, "d")
    d.create("configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "stuck", "finalizers": ["evil.example/never"],
        "annotations": {"sublet.dev/force-sync": "true"}}})
    d.create("pods", pod("stuck", metadata={"finalizers": ["evil.example/never"]}))
    wait(lambda: d.on_host("stuck") and d.on_host("stuck", kind="configmaps"))
    report.check("26 finalizers do not reach the host",
                 "finalizers" not in d.on_host("stuck")["metadata"])
    d.stop()
    done = subprocess.run([BIN, "delete", "d"], env={**os.environ, "KUBECONFIG": host.kubeconfig,
                                                     "HOME": host.work}, capture_output=True,
                          text=True, timeout=60)
    report.check("26 delete ends", done.returncode == 0, done.stderr)
    report.check("26 nothing is left", host.api.get("/api/v1/namespaces/sublet-d")[0] == 404)


def row40(a, b, host, place):
    c = place.tenant(host, "c")
    c.create("configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}})
    c.stop()
    good = os.path.join(c.data, "state.db")
    kept = open(good, "rb").read()

    def begin():
        c.child = None
        Serving.__mro__[1].start(c)
        wait(lambda: c.child.poll() is not None, 3)
        ended = c.child.poll()
        if ended is None:
            c.stop()
        return ended
    for name, crafted in (("noise", os.urandom(1 << 20)), ("an empty file", b""),
                          ("a cut file", kept[: len(kept) // 3]),
                          ("a file with flipped bytes", bytes(
                              x ^ 0x5a if 5000 < i < 9000 else x for i, x in enumerate(kept)))):
        for tail in ("-wal", "-shm"):
            if os.path.exists(good + tail):
                os.remove(good + tail)
        with open(good, "wb") as out:
            out.write(crafted)
        ended = begin()
        report.check("40 %s is refused or served" % name, ended is None or ended in (0, 1, 2), ended)
    foreign = host.api.get("/api/v1/namespaces/sublet-b/pods")[0]
    with open(good, "wb") as out:
        out.write(kept)
    # A mapping that claims another tenant's pod: the name is only ever used in the own namespace.
    connection = sqlite3.connect(good)
    tables = [r[0] for r in connection.execute("select name from sqlite_master where type='table'")]
    connection.close()
    report.check("40 the file stays an ordinary database", tables and foreign == 200, tables)
    c.start()
    report.check("40 the right file works again", c.api.get(NS + "configmaps/x")[0] == 200)
