#!/usr/bin/env python3
"""Acceptance rows of a syncer, one function per row and named by its number (the list is vCluster's
behaviour, numbered 1 to 30). Rows 1, 5, 6 and 9 are pure translation and live in syncer_test; rows 25
and 26 belong to storage; what needs a container is in run.sh. Row 30's figures are printed by
e2e/bench/load.py.
  rows.py [ROW ...]"""
import base64
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
from between import Between  # noqa: E402
from faults import FaultyHost  # noqa: E402
import load  # noqa: E402
from plain import BIN, KUBECTL, Report, Tenant, Workplace, pod, wait  # noqa: E402

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


def settled(host, path):
    """Half a second without a write."""
    version = lambda: host.api.get(path)[1]["metadata"]["resourceVersion"]
    before = version()
    time.sleep(0.5)
    return version() == before


def row2(t, host):
    for space in ("c2", "b-x-c2"):
        t.api.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace",
                                          "metadata": {"name": space}})
    wait(lambda: t.api.get("/api/v1/namespaces/b-x-c2/serviceaccounts/default")[0] == 200)
    force = {"annotations": {"sublet.dev/force-sync": "true"}}
    t.create("configmaps", config("a-x-b", {"who": "first"}, **force), "c2")
    first = wait(lambda: t.on_host("a-x-b", "c2", "configmaps"))
    t.create("configmaps", config("a", {"who": "second"}, **force), "b-x-c2")
    told = wait(lambda: t.events("a", "b-x-c2"), 5)
    now = t.on_host("a-x-b", "c2", "configmaps")
    report.check("2 a collision is refused with an event", told and now["data"] == {"who": "first"}
                 and now["metadata"]["uid"] == first["metadata"]["uid"], (told, now))


def row3(t, host):
    there = start(t, "r3", metadata={"labels": {
        "release": "mine", "app": "web", "sublet.dev/managed-by": "other"}})
    labels = there["metadata"]["labels"]
    report.check("3 release is carried under another key and the marker is the tenant's",
                 labels.get("release") is None and "mine" in labels.values() and
                 labels["app"] == "web" and labels["sublet.dev/managed-by"] == t.tenant, labels)
    report.check("3 the tenant's own label is as it was",
                 t.pod("r3")["metadata"]["labels"]["release"] == "mine")
    t.api.patch(NS + "pods/r3", {"metadata": {"labels": {"app": None, "new": "1"}}})
    report.check("3 a label that is removed leaves the host too", wait(
        lambda: "app" not in t.on_host("r3")["metadata"]["labels"] and
        t.on_host("r3")["metadata"]["labels"].get("new") == "1"), t.on_host("r3")["metadata"])


def row4(t, host):
    start(t, "r4")
    t.api.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"team": "red"}}})
    found = lambda: [k for k, v in t.on_host("r4")["metadata"]["labels"].items() if v == "red"]
    report.check("4 a namespace label reaches its host pods", wait(found, 5),
                 t.on_host("r4")["metadata"]["labels"])
    key = (found() or [""])[0]
    t.create("networkpolicies", {
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "r4"},
        "spec": {"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {
            "matchLabels": {"team": "red"}}}]}]}}, group="/apis/networking.k8s.io/v1")
    there = wait(lambda: t.on_host("r4", kind="networkpolicies",
                                   group="/apis/networking.k8s.io/v1"))
    report.check("4 a policy by namespaceSelector selects by it", there and key in
                 there["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"], there)


def row7(t, host):
    start(t, "r7", metadata={"labels": {"app": "one"}}, volumes=[{"name": "d", "downwardAPI": {
        "items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}])
    note = lambda: t.on_host("r7")["metadata"]["annotations"]["sublet.dev/labels"]
    first = note()
    t.api.patch(NS + "pods/r7", {"metadata": {"labels": {"app": "two"}}})
    report.check("7 a label update reaches the downward API file",
                 "one" in first and wait(lambda: "two" in note(), 5), note())


def row8(t, host):
    there = start(t, "r8", volumes=[{"name": "t", "projected": {"sources": [{
        "serviceAccountToken": {"path": "t", "audience": "vault", "expirationSeconds": 600}}]}}])
    text = str(there)
    report.check("8 the host pod holds no token", "eyJ" not in text and
                 "serviceAccountToken" not in text, text[:300])
    names = [s["secret"]["name"] for v in there["spec"]["volumes"] for s in
             v.get("projected", {}).get("sources", []) if "secret" in s]
    code, secret = host.api.get("/api/v1/namespaces/%s/secrets/%s" % (t.hns, names[0] if names else "-"))
    token = next((base64.b64decode(v).decode() for v in secret.get("data", {}).values()), "")
    claims = base64.urlsafe_b64decode(token.split(".")[1] + "==") if token else b"{}"
    claims = json.loads(claims)
    report.check("8 audience, life and pod are as asked", claims.get("aud") == ["vault"] and
                 claims["exp"] - claims["iat"] <= 700 and
                 claims["kubernetes.io"]["pod"]["name"] == "r8", claims)
    t.api.delete(NS + "pods/r8")
    report.check("8 the Secret goes with the pod", wait(lambda: host.api.get(
        "/api/v1/namespaces/%s/secrets/%s" % (t.hns, names[0]))[0] == 404, 10))


def deployment(name, replicas=1):
    labels = {"app": name}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": pod("x")["spec"] | {
                "terminationGracePeriodSeconds": 30}}}}


def pods_of(t, app):
    return [p for p in t.api.get(NS + "pods?labelSelector=app=" + app)[1]["items"]
            if "deletionTimestamp" not in p["metadata"]]


def row10(t, host):
    there = start(t, "r10")
    host.api.delete("/api/v1/namespaces/%s/pods/%s?gracePeriodSeconds=0" % (
        t.hns, there["metadata"]["name"]))
    report.check("10 a started pod whose twin is gone ends",
                 wait(lambda: t.pod("r10") is None) and t.on_host("r10") is None, t.pod("r10"))
    t.create("deployments", deployment("d10"), group=APPS)
    first = wait(lambda: [p for p in pods_of(t, "d10") if p["status"].get("phase") == "Running"])
    name = first[0]["metadata"]["name"]
    host.api.delete("/api/v1/namespaces/%s/pods/%s?gracePeriodSeconds=0" % (
        t.hns, t.host_name(name)))
    again = wait(lambda: [p for p in pods_of(t, "d10") if p["metadata"]["name"] != name and
                          p["status"].get("phase") == "Running"])
    report.check("10 its controller makes a new one", again and len(pods_of(t, "d10")) == 1, again)
    t.api.delete(APPS + "/namespaces/default/deployments/d10")


def row10_rejected(t, host):
    """A pod that the host's node refuses before any container ran is placed again, never lost."""
    refuse = {"status": {"phase": "Failed", "reason": "OutOfcpu", "message": "not enough on " + t.hns}}
    t.create("pods", pod("bare", nodeSelector={"gate": "open"}))
    t.api.patch("/api/v1/nodes/sim-0", {"metadata": {"labels": {"gate": "open"}}})
    uid = t.pod("bare")["metadata"]["uid"]

    def reject():
        # The simulated node is quick; a pod on a paused node is refused by hand.
        return host.api.patch("/api/v1/namespaces/%s/pods/%s/status" % (
            t.hns, t.host_name("bare")), refuse)[0] == 200
    for node in host.nodes:
        node.child.send_signal(19)  # SIGSTOP: the nodes do not run it before we refuse it
    try:
        wait(lambda: t.on_host("bare"))
        rejected = reject()
        told = wait(lambda: [e for e in t.events("bare") if e["reason"] == "RejectedByHost"], 10)
    finally:
        for node in host.nodes:
            node.child.send_signal(18)
    report.check("10 a refusal is told without host names",
                 rejected and told and t.hns not in told[0]["message"], told)
    report.check("10 the bare pod runs at last, the same pod",
                 running(t, "bare") and t.pod("bare")["metadata"]["uid"] == uid,
                 (t.pod("bare"), t.events("bare")))


def row11(t, host):
    start(t, "r11a", **{"terminationGracePeriodSeconds": 30})
    t.api.delete(NS + "pods/r11a?gracePeriodSeconds=1")
    report.check("11 deleted by the tenant", wait(
        lambda: t.pod("r11a") is None and t.on_host("r11a") is None, 20))
    start(t, "r11b", **{"terminationGracePeriodSeconds": 30})
    host.api.delete("/api/v1/namespaces/%s/pods/%s" % (t.hns, t.host_name("r11b")))
    report.check("11 deleted on the host", wait(
        lambda: t.pod("r11b") is None and t.on_host("r11b") is None, 20), t.pod("r11b"))
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j11"}, "spec": {
        "template": {"metadata": {"annotations": {"sublet.dev/simulate-run-seconds": "1"}},
                     "spec": pod("x")["spec"] | {"restartPolicy": "Never"}}}}
    t.create("jobs", job, group=BATCH)
    done = lambda: t.api.get(BATCH + "/namespaces/default/jobs/j11")[1].get("status", {})
    wait(lambda: done().get("active") == 1)
    name = t.api.get(NS + "pods?labelSelector=job-name=j11")[1]["items"][0]["metadata"]["name"]
    wait(lambda: t.on_host(name))
    host.api.patch("/api/v1/namespaces/%s/pods/%s/status" % (t.hns, t.host_name(name)),
                   {"status": {"phase": "Succeeded"}})
    report.check("11 a Job finishes", wait(lambda: done().get("succeeded") == 1), done())


def inject(method, path, body):
    """What admission webhooks of a host do to a new pod: a mesh's sidecars with their volume, a cloud's
    raised requests, tolerations and labels, an image from a mirror."""
    if method != "POST" or not path.endswith("/pods"):
        return
    labels = body["metadata"].setdefault("labels", {})
    labels.update({"istio.io/rev": "x", "hooked": "yes"})
    body["metadata"].setdefault("annotations", {})["sidecar.istio.io/status"] = "injected"
    spec = body["spec"]
    mount = {"name": "istio-token", "mountPath": "/var/run/istio"}
    for container in spec["containers"]:
        container["image"] = "mirror.example/" + container["image"]
        container.setdefault("resources", {}).setdefault("requests", {}).update(
            {"cpu": "250m", "memory": "512Mi"})
        container.setdefault("volumeMounts", []).append(mount)
    spec["containers"].append({"name": "istio-proxy", "image": "example/proxy:1", "volumeMounts": [mount]})
    spec.setdefault("initContainers", []).append(
        {"name": "istio-watch", "image": "example/proxy:1", "restartPolicy": "Always"})
    spec.setdefault("volumes", []).append({"name": "istio-token", "emptyDir": {}})
    spec.setdefault("tolerations", []).append({"key": "cloud.example/class", "operator": "Exists"})


def still(*reads):
    """Half a second in which none of the objects was written."""
    versions = lambda: [read()["metadata"]["resourceVersion"] for read in reads]
    before = versions()
    time.sleep(0.5)
    return versions() == before


def row12(host, place):
    t = Tenant(host, "hooked")
    proxy = Between(host, place.work, "hooked", change_request=inject)
    proxy.rewrite(t.host_kubeconfig)
    t.start()
    place.started.append(t)
    asked = {"image": "example/app:1", "resources": {"requests": {"cpu": "100m"}}}
    there = start(t, "r12", container=asked, metadata={"labels": {"app": "a"}})
    report.check("12 the host's pod has what its webhook added",
                 [c["name"] for c in there["spec"]["containers"]] == ["main", "istio-proxy"] and
                 there["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "250m" and
                 any(x.get("key") == "cloud.example/class" for x in there["spec"]["tolerations"]),
                 there["spec"])
    ready = lambda name: any(c["type"] == "Ready" and c["status"] == "True" for c in (
        t.pod(name) or {}).get("status", {}).get("conditions", []))
    report.check("12 the tenant's pod is Ready", wait(lambda: ready("r12")), t.pod("r12"))
    wait(lambda: "hooked" in t.pod("r12")["metadata"]["labels"])
    mine = t.pod("r12")
    text = json.dumps({**mine, "metadata": {**mine["metadata"], "managedFields": None}})
    main = mine["spec"]["containers"]
    report.check("12 nothing of it leaks up",
                 "istio" not in text and "mirror.example" not in json.dumps(main) and
                 "cloud.example" not in text and [c["name"] for c in main] == ["main"] and
                 main[0]["resources"]["requests"] == {"cpu": "100m"} and
                 [c["name"] for c in mine["status"]["containerStatuses"]] == ["main"] and
                 not mine["status"].get("initContainerStatuses"), mine)
    report.check("12 a plain label that the host added is shown, and stays the host's",
                 mine["metadata"]["labels"] == {"app": "a", "hooked": "yes"} and
                 "hooked" not in t.on_host("r12")["metadata"]["annotations"].get(
                     "sublet.dev/label-keys", ""), mine["metadata"])
    path = "/api/v1/namespaces/%s/pods/%s" % (t.hns, t.host_name("r12"))
    report.check("12 and there is no loop of writes", wait(
        lambda: still(lambda: t.pod("r12"), lambda: t.on_host("r12")), 10))
    host.api.patch(path, {"metadata": {"labels": {"hooked": "no"}}})
    report.check("12 the host changes its label", wait(
        lambda: t.pod("r12")["metadata"]["labels"]["hooked"] == "no", 10), t.pod("r12")["metadata"])
    host.api.patch(path, {"metadata": {"labels": {"hooked": None}}})
    report.check("12 and takes it back", wait(
        lambda: "hooked" not in t.pod("r12")["metadata"]["labels"], 10), t.pod("r12")["metadata"])
    t.api.patch(NS + "pods/r12", {"metadata": {"labels": {"app": "b"}}, "spec": {"containers": [
        {"name": "main", "image": "example/app:2"}]}}, STRATEGIC)
    report.check("12 the tenant's own changes still arrive", wait(
        lambda: t.on_host("r12")["metadata"]["labels"]["app"] == "b" and
        t.on_host("r12")["spec"]["containers"][0]["image"] == "example/app:2" and
        len(t.on_host("r12")["spec"]["containers"]) == 2, 10), t.on_host("r12")["spec"])
    report.check("12 no error was told", not [e for e in t.events("r12") if e["type"] == "Warning"],
                 t.events("r12"))
    t.create("deployments", deployment("d12", 2), group=APPS)
    report.check("12 a Deployment of such pods is available", wait(lambda: t.api.get(
        APPS + "/namespaces/default/deployments/d12")[1].get("status", {}).get(
            "availableReplicas") == 2), t.events("d12"))
    t.api.delete(APPS + "/namespaces/default/deployments/d12")
    t.api.delete(NS + "pods/r12")
    report.check("12 deletion works", wait(lambda: t.on_host("r12") is None and t.pod("r12") is None and
                                           not host.pods(t.hns), 45), list(host.pods(t.hns)))
    t.stop()
    proxy.close()


def row13(t, host):
    there = start(t, "r13")
    path = "/api/v1/namespaces/%s/pods/%s" % (t.hns, there["metadata"]["name"])
    host.api.patch(path, {"spec": {"tolerations": there["spec"].get("tolerations", []) + [
        {"key": "host", "operator": "Exists"}]}})
    mine = t.pod("r13")["spec"].get("tolerations", [])
    t.api.patch(NS + "pods/r13", {"spec": {"tolerations": mine + [
        {"key": "tenant", "operator": "Exists"}]}})
    keys = lambda: {x.get("key") for x in host.api.get(path)[1]["spec"]["tolerations"]}
    report.check("13 tolerations of both sides", wait(lambda: {"host", "tenant"} <= keys()), keys())
    report.check("13 without flapping", wait(lambda: settled(host, path), 10))


def row14(t, host):
    start(t, "r14", container={"resources": {"requests": {"cpu": "100m", "memory": "64Mi"},
                                             "limits": {"cpu": "100m", "memory": "64Mi"}}})
    t.api.patch(NS + "pods/r14", {"spec": {"containers": [{"name": "main", "image": "example/app:2"}]}},
                STRATEGIC)
    report.check("14 image change", wait(
        lambda: t.on_host("r14")["spec"]["containers"][0]["image"] == "example/app:2"))
    code, said = t.api.patch(NS + "pods/r14/resize", {"spec": {"containers": [{
        "name": "main", "resources": {"requests": {"cpu": "200m", "memory": "64Mi"},
                                      "limits": {"cpu": "200m", "memory": "64Mi"}}}]}}, STRATEGIC)
    report.check("14 resize", code == 200 and wait(lambda: t.on_host("r14")["spec"]["containers"][0][
        "resources"]["limits"]["cpu"] == "200m", 5), (code, said))
    t.api.patch(NS + "pods/r14/ephemeralcontainers", {"spec": {"ephemeralContainers": [
        {"name": "debug", "image": "example/debug:1"}]}}, STRATEGIC)
    report.check("14 ephemeral container", wait(lambda: [
        c for c in t.on_host("r14")["spec"].get("ephemeralContainers", [])
        if c["name"] == "debug"]))
    t.create("pods", pod("ready14", readinessGates=[{"conditionType": "example.com/go"}]))
    running(t, "ready14")
    conditions = lambda: {c["type"]: c["status"] for c in t.pod("ready14")["status"]["conditions"]}
    say = lambda value: t.api.patch(NS + "pods/ready14/status", {"status": {"conditions": [
        {"type": "example.com/go", "status": value}]}}, STRATEGIC)
    held = wait(lambda: conditions().get("ContainersReady") == "True") and \
        conditions().get("Ready") != "True"
    say("True")
    report.check("14 a readiness gate that a controller of the tenant sets makes the pod Ready",
                 held and wait(lambda: conditions().get("Ready") == "True", 20), conditions())
    say("False")
    report.check("14 and takes it back", wait(lambda: conditions().get("Ready") == "False" and
                                              conditions()["example.com/go"] == "False", 20),
                 conditions())
    t.create("pods", pod("gated", schedulingGates=[{"name": "example.com/gate"}]))
    time.sleep(0.3)
    held = t.on_host("gated") is None
    t.api.patch(NS + "pods/gated", {"spec": {"schedulingGates": []}})
    report.check("14 a scheduling gate holds, and lets go", held and running(t, "gated"),
                 t.pod("gated"))


def row15(t, host):
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


def row16(t, host):
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


def row17(t, host):
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


def row18(t, host):
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


def row19(t, host):
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
    import threading
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


def row21(t, host):
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


def limit(t, host, **hard):
    """A ResourceQuota on the host that is in force; the path to delete it."""
    path = "/api/v1/namespaces/%s/resourcequotas" % t.hns
    host.api.post(path, {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
                         "spec": {"hard": hard}})
    wait(lambda: host.api.get(path + "/q")[1].get("status", {}).get("hard"))
    time.sleep(0.3)  # admission reads it from a cache
    return path + "/q"


def row22(t, host):
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


def row24(t, host):
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


def row23(t, host, place):
    """Killed in the middle of creating, editing and deleting; and the host edited meanwhile."""
    import signal
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


def faults(host, place):
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


def newer(path, item):
    """A host one minor newer: fields, conditions and states that a tenant does not know."""
    if not isinstance(item.get("spec"), dict) or "/pods" not in path:
        return
    item["spec"]["futurePolicy"] = {"mode": "Later"}
    for container in item["spec"].get("containers", []):
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


def row28(host, place):
    """A host one minor newer, and one older: pods become Ready and stay it, without a write."""
    for name, changes in (("newer", {"change_answer": newer}),
                          ("older", {"change_request": older,
                                     "change_answer": lambda path, item: drop_new(item)
                                     if "/pods" in path else None})):
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


def row30(host, place):
    """kube-burner's cases in their small sizes on one tenant; nothing may be lost. Figures, and the large
    sizes, are e2e/bench/load.py's."""
    t = place.tenant(host, "load")
    for case in load.SMALL:
        lost = case(t).run()
        report.check("30 %s: everything is there" % case.name, not lost, lost)
    t.stop()


def storage(host, place):
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


def row29(host, place):
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


def replicated(host, place):
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


def chart(host):
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


ROWS = [row2, row3, row4, row7, row8, row10, row10_rejected, row11, row13, row14, row15,
        row16, row17, row18, row19, row21, row22, row24]
VALUES = "sync: {toHost: {networkPolicies: {enabled: true}, ingresses: {enabled: true}}}\n"


def main(wanted):
    with Workplace() as place:
        host = place.host(3, "--gpus", "4")
        t = place.tenant(host, "t", VALUES)
        steps = [(row.__name__, lambda row=row: row(t, host)) for row in ROWS]
        steps += [("row12", lambda: row12(host, place)), ("kubelet", lambda: kubelet(t, host, place)),
                  ("row28", lambda: row28(host, place)), ("storage", lambda: storage(host, place)),
                  ("row30", lambda: row30(host, place)), ("row20", lambda: row20(t, host, place)), ("row23", lambda: row23(t, host, place)),
                  ("faults", lambda: faults(host, place)), ("row29", lambda: row29(host, place)),
                  ("chart", lambda: chart(host)), ("replicated", lambda: replicated(host, place))]
        for name, step in steps:
            if wanted and name not in wanted:
                continue
            try:
                step()
            except Exception as error:  # a broken row is a failed one; the others still run
                import traceback
                report.check(name, False, "".join(traceback.format_exception(error))[-1200:])
    return report.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
