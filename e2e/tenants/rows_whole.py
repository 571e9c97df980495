"""A tenant as a whole: killed, faulted, loaded, without owners, made by helm."""
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
from faults import FaultyHost  # noqa: E402
import load  # noqa: E402
from plain import BIN, KUBECTL, Tenant, wait  # noqa: E402
from steps import NS, converged, emptied, everything, remove, report  # noqa: E402


def row23(t, host, place):
    """Killed in the middle of creating, editing and deleting; and the host edited meanwhile."""
    for moment in range(3):
        prefix = "k%d-" % moment
        refused = {r[:2] for r in everything(t, prefix, 4)}
        time.sleep(0.02 * moment)
        t.stop(signal.SIGKILL)
        t.start()
        lost = [(kind, prefix + str(i)) for i in range(4) for kind in (
            "configmaps", "secrets", "services", "persistentvolumeclaims", "pods")
            if (kind, prefix + str(i)) not in refused and
            t.api.get("%s%s/%s%d" % (NS, kind, prefix, i))[0] != 200]
        report.check("23 what was answered before the kill is there (%d)" % moment, not lost, lost)
        # What was refused is asked for again, as any client would, until it is there.
        refused = everything(t, prefix, 4)
        if refused:
            wait(lambda: not everything(t, prefix, 4), 15, 0.5)
        report.check("23 killed while creating (%d)" % moment,
                     wait(lambda: not converged(t, host, prefix, 4), 40, 0.2),
                     (converged(t, host, prefix, 4), refused[:4]))
    t.stop(signal.SIGKILL)
    edited = "/api/v1/namespaces/%s/configmaps/%s" % (t.hns, t.host_name("k0-0"))
    host.api.patch(edited, {"data": {"a": "edited while away"}})
    host.api.delete("/api/v1/namespaces/%s/pods/%s?gracePeriodSeconds=0" % (
        t.hns, t.host_name("k0-1")))
    t.start()
    report.check("23 a host edit made while away is not lost", wait(lambda: t.api.get(
        NS + "configmaps/k0-0")[1]["data"]["a"] == "edited while away", 20))
    report.check("23 a pod that vanished while away is not run twice",
                 wait(lambda: t.pod("k0-1") is None, 20), t.pod("k0-1"))
    remove(t, "k1-", 4)
    t.stop(signal.SIGKILL)
    t.start()
    remove(t, "k1-", 4)
    report.check("23 killed while deleting", wait(lambda: not emptied(t, host, "k1-"), 30, 0.2),
                 emptied(t, host, "k1-"))


def faults(t, host, place):
    """409, 429, 500, cut connections and delayed watches between the syncer and the host."""
    t = Tenant(host, "faulty")
    proxy = FaultyHost(host, place.work)
    proxy.rewrite(t.host_kubeconfig)
    t.start()
    place.started.append(t)
    proxy.on = True
    for _ in range(15):  # a POST that a fault reached is answered with it; clients try again
        everything(t, "f", 12)
        if not converged(t, host, "f", 12):
            break
        time.sleep(1)
    good = wait(lambda: not converged(t, host, "f", 12), 60, 0.3)
    report.check("23 created under faults %s: nothing lost, nothing twice" % proxy.count, good,
                 converged(t, host, "f", 12))
    for i in range(12):
        t.api.patch(NS + "configmaps/f%d" % i, {"data": {"a": "changed"}})
    good = wait(lambda: not converged(t, host, "f", 12), 60, 0.3)
    report.check("23 changed under faults", good, converged(t, host, "f", 12))
    remove(t, "f", 12)
    good = wait(lambda: not emptied(t, host, "f"), 60, 0.3)
    report.check("23 deleted under faults", good, emptied(t, host, "f"))
    proxy.on = False
    report.check("23 every kind of fault happened",
                 {"409", "429", "500", "cut before", "cut after", "slow watch", "cut watch"} <= set(proxy.count),
                 proxy.count)
    t.stop()
    proxy.close()


def row29(t, host, place):
    """setOwner off: no owner references, and delete sweeps by label."""
    t = place.tenant(host, "unowned", "experimental: {syncSettings: {setOwner: false}}\n")
    everything(t, "o", 3)
    wait(lambda: not converged(t, host, "o", 3), 30)
    report.check("29 without owner references", not t.on_host("o0")["metadata"].get(
        "ownerReferences"), t.on_host("o0")["metadata"])
    t.stop()
    done = subprocess.run([BIN, "delete", "unowned"], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "KUBECONFIG": host.kubeconfig, "HOME": host.work})
    report.check("29 delete sweeps by label", done.returncode == 0 and
                 host.api.get("/api/v1/namespaces/sublet-unowned")[0] == 404, done.stderr)


def row30(t, host, place):
    """kube-burner's cases in their small sizes on one tenant; nothing may be lost. Figures, and the large
    sizes, are e2e/bench/load.py's."""
    t = place.tenant(host, "load")
    for case in load.SMALL:
        lost = case(t).run()
        report.check("30 %s: everything is there" % case.name, not lost, lost)
    t.stop()


def chart(t, host, place):
    """The helm chart makes the objects that `sublet create` makes."""
    helm = os.path.join(os.environ["SUBLET_CLIENTS"], "helm-3")
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "manifests", "chart")
    every = """
sync: {toHost: {ingresses: {enabled: true}, priorityClasses: {enabled: true},
                storageClasses: {enabled: true}, persistentVolumes: {enabled: true},
                podDisruptionBudgets: {enabled: true}, serviceAccounts: {enabled: true}}}
networking: {replicateServices: {fromHost: [{from: shared/db, to: data/db}]}}
policies:
  gpu: {devices: 2}
  networkPolicy: {enabled: true}
  resourceQuota: {enabled: true, quota: {requests.cpu: "8"}}
  limitRange: {enabled: true, default: {cpu: "1"}, defaultRequest: {cpu: 100m}}
controlPlane: {statefulSet: {persistence: {enabled: true, size: 7Gi}, resources: {limits: {memory: 2Gi}}},
               service: {type: NodePort}}
"""
    for what, values in (("no values", "controlPlane: {statefulSet: {persistence: {enabled: false}}}\n"),
                         ("every policy", every)):
        path = os.path.join(host.work, "chart.yaml")
        with open(path, "w") as out:
            out.write(values)
        texts = [subprocess.run(command, capture_output=True, text=True) for command in (
            [BIN, "create", "team-a", "--print", "--image", "example/sublet:1", "-f", path,
             "--create-namespace=false"],
            [helm, "template", "team-a", folder, "-n", "sublet-team-a", "--set",
             "image=example/sublet:1", "-f", path])]
        parsed = []
        for text in texts:
            # The chart's labels and types, as kubectl reads them.
            done = subprocess.run([KUBECTL, "--kubeconfig", host.kubeconfig, "create", "-f", "-",
                                   "--dry-run=client", "-o", "json"], input=text.stdout,
                                  capture_output=True, text=True)
            decoder, at, objects = json.JSONDecoder(), 0, {}
            while at < len(done.stdout.rstrip()):
                found, at = decoder.raw_decode(done.stdout, at)
                at += len(done.stdout[at:]) - len(done.stdout[at:].lstrip())
                for item in found.get("items", [found]):
                    item.get("stringData", {}).pop("config.yaml", None)  # the same YAML, other spelling
                    template = item.get("spec", {}).get("template", {}).get("metadata", {})
                    if template:
                        assert len(template.pop("annotations")["sublet.dev/config"]) == 10
                    key = (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"])
                    objects[key] = item
            parsed.append(objects)
        ours, charts = parsed
        wrong = [key for key in set(ours) | set(charts) if ours.get(key) != charts.get(key)]
        report.check("helm chart: the CLI's objects, " + what, ours and not wrong,
                     (texts[1].stderr, [(ours.get(k), charts.get(k)) for k in wrong[:1]], wrong))


ROWS = [row23, faults, row29, row30, chart]
