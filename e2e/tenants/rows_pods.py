"""A pod on both sides: names, labels, updates, deletion and what a host adds to it."""
import base64
import json
import time

from between import Between
from plain import Tenant, pod, wait
from steps import (APPS, BATCH, NS, STRATEGIC, config, deployment, pods_of, report, running,
                   settled, start, still)


def row2(t, host, place):
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


def row3(t, host, place):
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


def row4(t, host, place):
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


def row7(t, host, place):
    start(t, "r7", metadata={"labels": {"app": "one"}}, volumes=[{"name": "d", "downwardAPI": {
        "items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}])
    note = lambda: t.on_host("r7")["metadata"]["annotations"]["sublet.dev/labels"]
    first = note()
    t.api.patch(NS + "pods/r7", {"metadata": {"labels": {"app": "two"}}})
    report.check("7 a label update reaches the downward API file",
                 "one" in first and wait(lambda: "two" in note(), 5), note())


def row8(t, host, place):
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


def row10(t, host, place):
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


def row10_rejected(t, host, place):
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


def row11(t, host, place):
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


def row12(t, host, place):
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


def row13(t, host, place):
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


def row14(t, host, place):
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


ROWS = [row2, row3, row4, row7, row8, row10, row10_rejected, row11, row12, row13, row14]
