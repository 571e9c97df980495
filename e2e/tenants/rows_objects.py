"""The kinds around pods: Services, ConfigMaps, Secrets, claims, classes, replicated Services."""
import os
import subprocess
import time

from plain import BIN, pod, wait
from steps import NS, config, report, service, start


def row15(t, host, place):
    def both(name):
        return (t.api.get(NS + "services/" + name)[1]["spec"],
                (t.on_host(name, kind="services") or {}).get("spec", {}))
    body = service("r15", selector={"a": "b"})
    body.pop("kind")
    body.pop("apiVersion")
    code, said = t.create("services", body)
    report.check("15 created without kind in the body, with the host's address in the answer",
                 code == 201 and said["spec"]["clusterIP"] == both("r15")[1].get("clusterIP"),
                 (code, said))
    for kind in ("NodePort", "LoadBalancer", "ClusterIP", "ExternalName", "ClusterIP", "NodePort"):
        change = {"type": kind, "externalName": "x.example" if kind == "ExternalName" else None}
        if kind == "ExternalName":
            change |= {"clusterIP": None, "clusterIPs": None}
        code, said = t.api.patch(NS + "services/r15", {"spec": change})
        if kind == "ExternalName":
            good = wait(lambda: t.on_host("r15", kind="services") is None)
        else:
            def same():
                mine, theirs = both("r15")
                ports = lambda s: [p.get("nodePort") for p in s.get("ports", [])]
                return (mine["type"] == theirs.get("type") == kind and
                        mine["clusterIP"] == theirs["clusterIP"] and ports(mine) == ports(theirs))
            good = wait(same)
        report.check("15 switched to " + kind, code == 200 and good, (code, said, both("r15")))
    t.create("services", service("lb", type="LoadBalancer", selector={"a": "b"}))
    host.api.patch("/api/v1/namespaces/%s/services/%s/status" % (t.hns, t.host_name("lb")),
                   {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}})
    report.check("15 a load balancer's address comes back", wait(lambda: t.api.get(
        NS + "services/lb")[1]["status"]["loadBalancer"].get("ingress") == [
            {"ip": "192.0.2.7", "ipMode": "VIP"}] or t.api.get(NS + "services/lb")[1]["status"][
            "loadBalancer"].get("ingress") == [{"ip": "192.0.2.7"}]),
        t.api.get(NS + "services/lb")[1].get("status"))
    host.api.delete("/api/v1/namespaces/%s/services/%s" % (t.hns, t.host_name("r15")))
    wait(lambda: (t.on_host("r15", kind="services") or {}).get("spec"))
    report.check("15 deleted on the host, it comes back and both agree", wait(
        lambda: both("r15")[0]["clusterIP"] == both("r15")[1].get("clusterIP")), both("r15"))
    t.api.delete(NS + "services/r15")
    report.check("15 deleted", wait(lambda: t.on_host("r15", kind="services") is None))


def row16(t, host, place):
    t.create("endpoints", {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "r16"},
                           "subsets": [{"addresses": [{"ip": "192.0.2.1"}],
                                        "ports": [{"port": 80}]}]})
    t.create("services", service("r16"))
    report.check("16 Endpoints before their Service", wait(
        lambda: (t.on_host("r16", kind="endpoints") or {}).get("subsets")))
    t.api.patch(NS + "services/r16", {"spec": {"selector": {"app": "r16"}}})
    report.check("16 a selector is added", wait(lambda: (t.on_host("r16", kind="services") or {})[
        "spec"].get("selector", {}).get("app") == "r16"))
    t.api.patch(NS + "services/r16", {"spec": {"selector": None}})
    report.check("16 and removed", wait(lambda: not (t.on_host("r16", kind="services") or {})[
        "spec"].get("selector")), t.on_host("r16", kind="services"))
    code, own = t.api.get(NS + "services/kubernetes")
    theirs = host.api.get("/api/v1/namespaces/%s/services/%s" % (t.hns, t.tenant))[1]
    report.check("16 default/kubernetes shows the tenant's real address",
                 own["spec"]["clusterIP"] == theirs["spec"]["clusterIP"], own)


def row17(t, host, place):
    t.create("configmaps", config("r17", {"a": "1"}))
    time.sleep(0.3)
    report.check("17 unused: not on the host", t.on_host("r17", kind="configmaps") is None)
    t.create("pods", pod("r17", volumes=[{"name": "v", "configMap": {"name": "r17"}}]))
    begin = time.monotonic()
    there = wait(lambda: t.on_host("r17", kind="configmaps"), 5)
    report.check("17 used: there within a second", there and time.monotonic() - begin < 5)
    t.api.patch(NS + "configmaps/r17", {"data": {"a": "2"}})
    report.check("17 an edit goes down", wait(
        lambda: t.on_host("r17", kind="configmaps")["data"] == {"a": "2"}))
    host.api.patch("/api/v1/namespaces/%s/configmaps/%s" % (t.hns, t.host_name("r17")),
                   {"data": {"a": "3"}})
    report.check("17 an edit on the host comes back", wait(
        lambda: t.api.get(NS + "configmaps/r17")[1]["data"] == {"a": "3"}))
    t.create("secrets", config("r17-tls", {"tls.crt": "c", "tls.key": "k"}, kind="Secret"))
    t.create("ingresses", {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
                           "metadata": {"name": "r17"}, "spec": {
                               "tls": [{"hosts": ["r17.example"], "secretName": "r17-tls"}],
                               "defaultBackend": {"service": {"name": "x", "port": {"number": 80}}}}},
             group="/apis/networking.k8s.io/v1")
    shown = lambda: t.on_host("r17", kind="ingresses", group="/apis/networking.k8s.io/v1")
    report.check("17 the Secret of an Ingress's certificate goes with it", wait(
        lambda: t.on_host("r17-tls", kind="secrets")) and wait(shown) and shown()["spec"]["tls"][0][
            "secretName"] == t.host_name("r17-tls"), shown())
    t.api.delete("/apis/networking.k8s.io/v1/namespaces/default/ingresses/r17")
    report.check("17 and leaves with it", wait(lambda: t.on_host("r17-tls", kind="secrets") is None))
    t.api.delete(NS + "pods/r17")
    report.check("17 gone after the last use", wait(
        lambda: t.on_host("r17", kind="configmaps") is None))


def row18(t, host, place):
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "r18"},
             "spec": {"accessModes": ["ReadWriteOnce"],
                      "resources": {"requests": {"storage": "1Gi"}}}}
    t.create("persistentvolumeclaims", claim)
    report.check("18 a claim reaches the host", wait(
        lambda: t.on_host("r18", kind="persistentvolumeclaims")))
    report.check("18 bound with the host's volume", wait(lambda: t.api.get(
        NS + "persistentvolumeclaims/r18")[1]["status"].get("phase") == "Bound" and t.api.get(
        NS + "persistentvolumeclaims/r18")[1]["spec"].get("volumeName")),
        t.api.get(NS + "persistentvolumeclaims/r18")[1])
    volume = "/api/v1/persistentvolumes/" + t.api.get(
        NS + "persistentvolumeclaims/r18")[1]["spec"].get("volumeName", "-")
    shown = wait(lambda: t.api.get(volume)[1].get("status", {}).get("phase") == "Bound" and
                 t.api.get(volume)[1], 10)
    report.check("18 the tenant sees the volume, and none of the host's others", shown and
                 shown["spec"]["claimRef"]["name"] == "r18" and shown["spec"]["capacity"] == t.api.get(
                     NS + "persistentvolumeclaims/r18")[1]["status"]["capacity"] and
                 len(t.api.get("/api/v1/persistentvolumes")[1]["items"]) == 1, t.api.get(volume))
    t.api.delete(NS + "persistentvolumeclaims/r18")
    report.check("18 the volume goes with it", wait(lambda: t.api.get(volume)[0] == 404, 15),
                 t.api.get(volume))
    report.check("18 deleted on both sides", wait(lambda: t.api.get(
        NS + "persistentvolumeclaims/r18")[0] == 404 and t.on_host(
        "r18", kind="persistentvolumeclaims") is None, 15),
        t.api.get(NS + "persistentvolumeclaims/r18"))


def storage(t, host, place):
    """A tenant's own StorageClasses and PersistentVolumes on the host."""
    values = ("sync: {toHost: {storageClasses: {enabled: true}, persistentVolumes: {enabled: true}}}\n")
    t = place.tenant(host, "store", values)
    classes, volumes = "/apis/storage.k8s.io/v1/storageclasses", "/api/v1/persistentvolumes"
    cluster = lambda name: "sublet-%s-x-%s-x-%s" % (name, t.hns, t.tenant)
    t.api.post(classes, {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {
        "name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubernetes.io/no-provisioner", "parameters": {
            "csi.storage.k8s.io/provisioner-secret-name": "key",
            "csi.storage.k8s.io/provisioner-secret-namespace": "kube-system"}})
    code, there = wait(lambda: (lambda a: a[0] == 200 and a)(host.api.get(
        classes + "/" + cluster("fast")))) or (0, {})
    report.check("storage: a class of the tenant's on the host, no default there, Secrets its own",
                 there and there["parameters"]["csi.storage.k8s.io/provisioner-secret-namespace"] == t.hns
                 and "storageclass.kubernetes.io/is-default-class" not in there["metadata"].get(
                     "annotations", {}), there)
    body = lambda name, **spec: {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {
        "name": name}, "spec": {"capacity": {"storage": "3Gi"}, "accessModes": ["ReadWriteOnce"],
                                "persistentVolumeReclaimPolicy": "Retain", **spec}}
    source = {"nfs": {"server": "192.0.2.9", "path": "/x"}}
    t.api.post(volumes, body("mine", storageClassName="fast", **source))
    t.api.post(volumes, body("anybodys", **source))
    t.api.post(volumes, body("root", storageClassName="fast", hostPath={"path": "/"}))
    report.check("storage: a volume of the tenant's on the host", wait(
        lambda: host.api.get(volumes + "/" + cluster("mine"))[0] == 200) and host.api.get(
            volumes + "/" + cluster("mine"))[1]["spec"]["storageClassName"] == cluster("fast"))
    told = lambda name: wait(lambda: [e for e in t.events(name) if e["type"] == "Warning"], 10)
    report.check("storage: one that any tenant could claim, or a folder of the node: refused, and told",
                 told("anybodys") and told("root") and
                 host.api.get(volumes + "/" + cluster("anybodys"))[0] == 404 and
                 host.api.get(volumes + "/" + cluster("root"))[0] == 404, t.events("root"))
    t.create("persistentvolumeclaims", {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "3Gi"}}}})
    claim = lambda: t.api.get(NS + "persistentvolumeclaims/data")[1]
    good = wait(lambda: claim().get("status", {}).get("phase") == "Bound", 40)
    mine = lambda: t.api.get(volumes + "/mine")[1]
    report.check("storage: the tenant's claim is bound to the tenant's volume", good and claim()["spec"][
        "volumeName"] == "mine" and claim()["spec"]["storageClassName"] == "fast", claim())
    report.check("storage: which shows it", wait(
        lambda: mine().get("status", {}).get("phase") == "Bound" and mine()["spec"].get(
            "claimRef", {}).get("uid") == claim()["metadata"]["uid"], 15), mine())
    t.api.delete(NS + "persistentvolumeclaims/data")
    report.check("storage: Released after the claim, kept as Retain says", wait(
        lambda: mine().get("status", {}).get("phase") == "Released", 20), mine())
    t.api.delete(volumes + "/mine")
    report.check("storage: deleted on both sides", wait(
        lambda: t.api.get(volumes + "/mine")[0] == 404 and
        host.api.get(volumes + "/" + cluster("mine"))[0] == 404, 20), mine())
    t.stop()
    subprocess.run([BIN, "delete", "store"], capture_output=True, timeout=60,
                   env={**os.environ, "KUBECONFIG": host.kubeconfig, "HOME": host.work})
    report.check("storage: delete takes the class along", wait(
        lambda: host.api.get(classes + "/" + cluster("fast"))[0] == 404))


def replicated(t, host, place):
    """Services both ways, PriorityClasses and disruption budgets to the host."""
    host.api.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace",
                                         "metadata": {"name": "shared"}})
    host.api.post("/api/v1/namespaces/shared/services", service("db", selector={"app": "db"}))
    t = place.tenant(host, "rep", """
networking:
  replicateServices:
    toHost: [{from: default/web, to: shop}]
    fromHost: [{from: shared/db, to: data/db}]
sync:
  toHost:
    priorityClasses: {enabled: true}
    podDisruptionBudgets: {enabled: true}
""")
    t.create("services", service("web", selector={"app": "web"}))
    path = "/api/v1/namespaces/%s/services/shop" % t.hns
    report.check("replicated: a tenant's Service on the host", wait(
        lambda: host.api.get(path)[0] == 200 and
        host.api.get(path)[1]["spec"]["selector"].get("app") == "web"), host.api.get(path))
    mine = lambda: t.api.get("/api/v1/namespaces/data/endpoints/db")
    ip = host.api.get("/api/v1/namespaces/shared/services/db")[1]["spec"]["clusterIP"]
    report.check("replicated: a host's Service in the tenant", wait(
        lambda: mine()[0] == 200 and mine()[1]["subsets"][0]["addresses"] == [{"ip": ip}]), mine())
    t.api.delete(NS + "services/web")
    report.check("replicated: gone with the tenant's", wait(lambda: host.api.get(path)[0] == 404))
    t.api.post("/apis/scheduling.k8s.io/v1/priorityclasses", {
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "high"}, "value": 500})
    start(t, "prio", priorityClassName="high")
    report.check("PriorityClass: the host pod has the class and its value",
                 t.on_host("prio")["spec"].get("priority") == 500, t.on_host("prio")["spec"])
    t.create("poddisruptionbudgets", {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}},
        group="/apis/policy/v1")
    there = wait(lambda: t.on_host("b", kind="poddisruptionbudgets", group="/apis/policy/v1"))
    report.check("PodDisruptionBudget: selects the namespace's own pods only", there and there[
        "spec"]["selector"]["matchLabels"].get("sublet.dev/namespace") == "default", there)
    t.stop()
    subprocess.run([BIN, "delete", "rep"], capture_output=True, timeout=60,
                   env={**os.environ, "KUBECONFIG": host.kubeconfig, "HOME": host.work})
    left = [c["metadata"]["name"] for c in host.api.get(
        "/apis/scheduling.k8s.io/v1/priorityclasses")[1]["items"] if "rep" in c["metadata"]["name"]]
    roles = host.api.get("/apis/rbac.authorization.k8s.io/v1/namespaces/shared/roles")[1]["items"]
    report.check("delete takes cluster-scoped objects and roles elsewhere along",
                 not left and not roles, (left, roles))


ROWS = [row15, row16, row17, row18, storage, replicated]
