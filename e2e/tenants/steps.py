"""What the rows share: objects to make, and looks at both sides."""
import time

from plain import Report, pod, wait

report = Report()
NS = "/api/v1/namespaces/default/"
APPS = "/apis/apps/v1"
BATCH = "/apis/batch/v1"
STRATEGIC = "application/strategic-merge-patch+json"


def running(t, name):
    return wait(lambda: (t.pod(name) or {}).get("status", {}).get("phase") == "Running")


def start(t, name, **more):
    code, said = t.create("pods", pod(name, **more))
    assert code == 201, said
    assert running(t, name), (t.pod(name), t.events(name))
    return t.on_host(name)


def config(name, data, kind="ConfigMap", **metadata):
    field = "data" if kind == "ConfigMap" else "stringData"
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, **metadata}, field: data}


def service(name, **spec):
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"ports": [{"port": 80}], **spec}}


def deployment(name, replicas=1):
    labels = {"app": name}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": pod("x")["spec"] | {
                "terminationGracePeriodSeconds": 30}}}}


def pods_of(t, app):
    return [p for p in t.api.get(NS + "pods?labelSelector=app=" + app)[1]["items"]
            if "deletionTimestamp" not in p["metadata"]]


def settled(host, path):
    """Half a second without a write."""
    version = lambda: host.api.get(path)[1]["metadata"]["resourceVersion"]
    before = version()
    time.sleep(0.5)
    return version() == before


def still(*reads):
    """Half a second in which none of the objects was written."""
    versions = lambda: [read()["metadata"]["resourceVersion"] for read in reads]
    before = versions()
    time.sleep(0.5)
    return versions() == before


def limit(t, host, **hard):
    """A ResourceQuota on the host that is in force; the path to delete it."""
    path = "/api/v1/namespaces/%s/resourcequotas" % t.hns
    host.api.post(path, {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
                         "spec": {"hard": hard}})
    wait(lambda: host.api.get(path + "/q")[1].get("status", {}).get("hard"))
    time.sleep(0.3)  # admission reads it from a cache
    return path + "/q"


def everything(t, prefix, count=8):
    """One of each kind, `count` times. Returns what was answered otherwise than "made" or "is there"."""
    refused = []

    def ask(kind, body):
        code, said = t.create(kind, body)
        if code not in (201, 409) or (code == 409 and said.get("reason") != "AlreadyExists"):
            refused.append((kind, body["metadata"]["name"], code, said))
    for i in range(count):
        name = "%s%d" % (prefix, i)
        ask("configmaps", config(name, {"a": name}))
        ask("secrets", config(name, {"a": name}, kind="Secret"))
        ask("services", service(name, selector={"app": name}))
        ask("persistentvolumeclaims", {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"],
                     "resources": {"requests": {"storage": "1Mi"}}}})
        ask("pods", pod(name, volumes=[{"name": "c", "configMap": {"name": name}},
                                       {"name": "s", "secret": {"secretName": name}}]))
    return refused


def converged(t, host, prefix, count=8):
    """What is wrong, or nothing: every object once on both sides and equal."""
    wrong = []
    for kind in ("pods", "configmaps", "secrets", "services", "persistentvolumeclaims"):
        mine = {x["metadata"]["name"]: x for x in t.api.get(NS + kind)[1]["items"]
                if x["metadata"]["name"].startswith(prefix)}
        items = host.api.get("/api/v1/namespaces/%s/%s?labelSelector=sublet.dev/managed-by=%s" % (
            t.hns, kind, t.tenant))[1]["items"]
        note = "sublet.dev/object-name"
        theirs = [x for x in items if x["metadata"].get("annotations", {}).get(note, "").startswith(
            prefix)]
        names = [x["metadata"]["annotations"][note] for x in theirs]
        if len(names) != len(set(names)) or set(names) != set(mine) or len(mine) != count:
            wrong.append((kind, sorted(mine), sorted(names)))
        for x in theirs:
            own = mine.get(x["metadata"]["annotations"][note], {"metadata": {}})
            if x["metadata"]["annotations"].get("sublet.dev/object-uid") != own["metadata"].get("uid"):
                wrong.append((kind, "uid", x["metadata"]["name"]))
            if kind == "services" and own.get("spec", {}).get("clusterIP") != x["spec"]["clusterIP"]:
                wrong.append((kind, "address", x["metadata"]["name"]))
            if kind == "configmaps" and own.get("data") != x.get("data"):
                wrong.append((kind, "data", own.get("data"), x.get("data")))
            if kind == "pods" and own.get("status", {}).get("phase") != "Running":
                wrong.append((kind, "phase", x["metadata"]["name"]))
    return wrong


def emptied(t, host, prefix):
    left = []
    for kind in ("pods", "configmaps", "secrets", "services", "persistentvolumeclaims"):
        left += [(kind, x["metadata"]["name"]) for x in host.api.get(
            "/api/v1/namespaces/%s/%s" % (t.hns, kind))[1]["items"]
            if x["metadata"].get("annotations", {}).get("sublet.dev/object-name", "").startswith(
                prefix)]
    return left


def remove(t, prefix, count=8):
    for i in range(count):
        for kind in ("pods", "services", "configmaps", "secrets", "persistentvolumeclaims"):
            t.api.delete(NS + kind + "/%s%d?gracePeriodSeconds=0" % (prefix, i))
