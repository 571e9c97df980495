"""What a tenant sees of its host, and what it is told: nodes, kubelets, quotas, other versions."""
import json
import threading
import time

from between import Between
from plain import Tenant, pod, wait
from steps import APPS, NS, deployment, limit, pods_of, report, running, start, still


def row19(t, host, place):
    host.api.patch("/api/v1/nodes/sim-1", {"metadata": {"labels": {"zone": "x"}}, "spec": {
        "taints": [{"key": "host", "value": "1", "effect": "NoSchedule"}]}})
    mine = lambda: t.api.get("/api/v1/nodes/sim-1")[1]
    report.check("19 labels and taints come", wait(
        lambda: mine()["metadata"]["labels"].get("zone") == "x" and
        any(x["key"] == "host" for x in mine()["spec"].get("taints", []))), mine())
    before = t.log().count("\n")
    time.sleep(2)
    report.check("19 heartbeats are not logged", t.log().count("\n") - before < 3)
    host.api.patch("/api/v1/nodes/sim-1", {"spec": {"taints": None}})
    report.check("19 and go", wait(lambda: not any(
        x["key"] == "host" for x in mine()["spec"].get("taints", []))), mine())


def row20(t, host, place):
    other = place.tenant(host, t.tenant, namespace="sublet-twin")
    free = lambda who: who.api.get("/api/v1/nodes/sim-2")[1]["status"]["allocatable"]["nvidia.com/gpu"]
    whole = free(t)
    asks = {"resources": {"limits": {"nvidia.com/gpu": whole}}}
    start(other, "greedy", container=asks, nodeName="sim-2")
    report.check("20 a full node shows 0 to the other tenant of the same name",
                 wait(lambda: free(t) == "0"), free(t))
    report.check("20 and what it holds to the tenant itself", free(other) == whole, free(other))
    other.api.delete(NS + "pods/greedy")
    report.check("20 freed", wait(lambda: free(t) == whole), free(t))
    one = {"resources": {"limits": {"nvidia.com/gpu": whole}}}
    pick = {"kubernetes.io/hostname": "sim-2"}
    racing = [threading.Thread(target=lambda w=w: w.create("pods", pod("race", container=one,
                                                                       nodeSelector=pick)))
              for w in (t, other)]
    for thread in racing:
        thread.start()
    for thread in racing:
        thread.join()
    phases = lambda: sorted(w.pod("race")["status"].get("phase", "") for w in (t, other))
    won = wait(lambda: phases() == ["Pending", "Running"])
    report.check("20 two race for the last GPU: one runs, one waits, none fails", won, phases())
    winner, loser = (t, other) if t.pod("race")["status"].get("phase") == "Running" else (other, t)
    winner.api.delete(NS + "pods/race")
    report.check("20 the other runs when it is free", running(loser, "race"),
                 (loser.pod("race"), loser.events("race")))
    loser.api.delete(NS + "pods/race")


def kubelet(t, host, place):
    """What a tenant sees of a node's kubelet: its own pods."""
    other = place.tenant(host, "neighbour")
    for who, name in ((t, "r21k"), (other, "hidden21")):
        who.create("pods", pod(name, nodeName="sim-0"))
        running(who, name)
    ask = lambda path, method="GET": t.api.call(method, "/api/v1/nodes/sim-0/proxy" + path)
    code, listed = ask("/pods")
    own = {p["metadata"]["name"] for p in t.api.get(
        "/api/v1/pods?fieldSelector=spec.nodeName=sim-0")[1]["items"]}
    names = {p["metadata"]["name"] for p in listed.get("items", [])} if code == 200 else set()
    report.check("21 the kubelet's /pods are the tenant's own", "r21k" in names and names == own and
                 "hidden21" not in str(listed) and t.hns not in str(listed), (code, names))
    report.check("21 /runningpods and /healthz answer", "r21k" in str(ask("/runningpods/")[1]) and
                 ask("/healthz")[0] == 200, ask("/healthz"))
    report.check("21 the lists cannot be written", ask("/pods", "DELETE")[0] == 405 and t.pod("r21k"),
                 ask("/pods", "DELETE"))
    logs = "/containerLogs/default/"
    report.check("21 the way to an own container's log is open", ask(logs + "r21k/main")[0] != 403,
                 ask(logs + "r21k/main"))
    for what, path in (("a neighbour's container", logs + "hidden21/main"),
                       ("a host name", logs + other.host_name("hidden21") + "/main"),
                       ("a container it has not", logs + "r21k/sidecar"),
                       ("another container by the query", logs + "r21k/main?container=sidecar"),
                       ("the host's statistics", "/stats/summary"), ("its metrics", "/metrics"),
                       ("its exec", "/exec/default/r21k/main?command=id"), ("its configuration", "/configz")):
        code, said = ask(path)
        report.check("21 %s: 403" % what, code == 403 and t.hns not in str(said), (code, said))
    report.check("21 a node of nobody: 404", t.api.get("/api/v1/nodes/none/proxy/pods")[0] == 404)
    other.stop()


def row21(t, host, place):
    start(t, "r21")
    t.api.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "look"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]})
    t.api.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "look"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io",
                                                  "kind": "Role", "name": "look"},
        "subjects": [{"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}]})
    as_eve = {"Impersonate-User": "eve"}
    code = t.api.call("GET", NS + "pods/r21", headers=as_eve)[0]
    for tail in ("exec?command=id", "attach", "portforward", "log"):
        method = "GET" if tail == "log" else "POST"
        denied = t.api.call(method, NS + "pods/r21/" + tail, headers=as_eve)[0]
        report.check("21 %s is denied by the tenant's RBAC" % tail.split("?")[0],
                     code == 200 and denied == 403, (code, denied))


def row22(t, host, place):
    t.create("pods", pod("r22", priorityClassName=None, runtimeClassName=None, container={
        "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}}))
    quota = limit(t, host, **{"requests.storage": "0"})
    t.create("persistentvolumeclaims", {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "r22"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
    told = wait(lambda: [e for e in t.events("r22") if e["type"] == "Warning"], 8)
    host.api.delete(quota)
    t.api.delete(NS + "persistentvolumeclaims/r22")
    every = t.api.get("/api/v1/events")[1]["items"]
    leaks = [e["message"] for e in every if "-x-" + t.tenant in e["message"] or t.hns in e["message"]]
    report.check("22 events tell and name nothing of the host", told and not leaks, (told, leaks[:5]))


def row24(t, host, place):
    code, said = t.create("pods", pod("r24", container={"securityContext": {"privileged": True}}))
    report.check("24 Pod Security is told", code == 403 or wait(lambda: t.events("r24"), 5),
                 (code, said))
    quota = limit(t, host, **{"requests.cpu": "0"})
    t.create("pods", pod("r24q", container={"resources": {"requests": {"cpu": "1"}}}))
    told = wait(lambda: [e for e in t.events("r24q") if "exceeded quota" in e["message"]], 8)
    report.check("24 a quota breach is an event on the tenant's pod", told, t.events("r24q"))
    host.api.delete(quota)
    report.check("24 and when it is lifted the pod runs", wait(lambda: running(t, "r24q"), 30),
                 t.pod("r24q"))


def is_pod(path, item):
    """Whether `item` is a pod: under /pods are refusals and bookmarks too."""
    spec = item.get("spec")
    return "/pods" in path and isinstance(spec, dict) and isinstance(spec.get("containers"), list)


def newer(path, item):
    """A host one minor newer: fields, conditions and states that a tenant does not know."""
    if not is_pod(path, item):
        return
    item["spec"]["futurePolicy"] = {"mode": "Later"}
    for container in item["spec"]["containers"]:
        container["futureMode"] = "x"
    status = item.setdefault("status", {})
    status["futureState"] = "Fine"
    for condition in status.get("conditions", []):
        condition["futureGeneration"] = 7
    if status.get("conditions"):
        status["conditions"].append({"type": "FutureReady", "status": "True"})
    for one in status.get("containerStatuses", []):
        one["futureUsage"] = {"cpu": "1"}


OLD_POD = ("resources", "hostnameOverride", "hostUsers", "workloadRef")


OLD_STATUS = ("observedGeneration", "hostIPs", "resize", "allocatedResources", "extendedResourceClaimStatus")


def drop_new(item):
    """What a host one minor older does not know, out of a pod."""
    for field in OLD_POD:
        item.get("spec", {}).pop(field, None)
    for container in item.get("spec", {}).get("containers", []):
        for field in ("resizePolicy", "restartPolicyRules"):
            container.pop(field, None)
    status = item.get("status", {})
    for field in OLD_STATUS:
        status.pop(field, None)
    for condition in status.get("conditions", []):
        condition.pop("observedGeneration", None)
    for one in status.get("containerStatuses", []):
        for field in ("resources", "allocatedResources", "user", "stopSignal"):
            one.pop(field, None)


def older(method, path, body):
    if "/pods" in path:
        drop_new(body)


def row28(t, host, place):
    """A host one minor newer, and one older: pods become Ready and stay it, without a write."""
    for name, changes in (("newer", {"change_answer": newer}),
                          ("older", {"change_request": older,
                                     "change_answer": lambda path, item: drop_new(item)
                                     if is_pod(path, item) else None})):
        t = Tenant(host, "skew-" + name)
        proxy = Between(host, place.work, "skew-" + name, **changes)
        proxy.rewrite(t.host_kubeconfig)
        t.start()
        place.started.append(t)
        t.create("deployments", deployment("web", 2), group=APPS)
        code, said = t.create("pods", pod("r28", resources={"requests": {"cpu": "50m"}}, container={
            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]}))
        status = lambda: t.api.get(APPS + "/namespaces/default/deployments/web")[1].get("status", {})
        ready = lambda p: any(c["type"] == "Ready" and c["status"] == "True"
                              for c in p.get("status", {}).get("conditions", []))
        good = code == 201 and wait(lambda: status().get("availableReplicas") == 2 and ready(
            t.pod("r28")))
        report.check("28 a host one minor %s: pods are Ready" % name, good, (code, said, status()))
        uids = lambda: sorted(p["metadata"]["uid"] for p in pods_of(t, "web"))
        first, flapped, moved = uids(), [], 0
        wait(lambda: still(lambda: t.pod("r28"), lambda: t.on_host("r28")), 10)
        before = t.pod("r28")["metadata"]["resourceVersion"]
        end = time.monotonic() + 3
        while time.monotonic() < end:
            moved += 1
            if moved % 10 == 0:  # something of the host moves meanwhile
                host.api.patch("/api/v1/namespaces/%s/pods/%s" % (t.hns, t.host_name("r28")),
                               {"metadata": {"annotations": {"host.example/beat": str(moved)}}})
            if status().get("availableReplicas") != 2 or not ready(t.pod("r28")) or uids() != first:
                flapped.append((status(), uids()))
            time.sleep(0.05)
        report.check("28 and stay it, the same pods", not flapped, flapped[:2])
        now = t.pod("r28")
        report.check("28 without a write to the tenant's pod",
                     now["metadata"]["resourceVersion"] == before and not [
                         e for e in t.events("r28") if e["type"] == "Warning"], (before, now))
        report.check("28 what the tenant does not know is not in it",
                     "future" not in json.dumps(now["spec"]) and "futureState" not in now["status"], now)
        t.api.patch(NS + "pods/r28", {"metadata": {"labels": {"step": "2"}}})
        report.check("28 changes still arrive", wait(
            lambda: t.on_host("r28")["metadata"]["labels"].get("step") == "2", 10))
        t.stop()
        proxy.close()


ROWS = [row19, row20, row21, row22, row24, kubelet, row28]
