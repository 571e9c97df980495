#!/usr/bin/env python3
"""Forty things a hostile tenant tries. One function per row, named by its number; each shows that the
hostile action is refused (an error, or an Event on the tenant's object and nothing on the host) and
that the same action without the hostile part works.
  hostile.py [ROW ...]   all rows, or some. Rows that need a device are in e2e/gpu/run.sh."""
import base64
import json
import concurrent.futures
import os
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tenants"))
from plain import Api, Report, Workplace, KUBECTL, BIN, Serving, free_port, pod, wait  # noqa: E402

report = Report()
NS = "/api/v1/namespaces/default/"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


def lands(t, name, body, what):
    """The same without the hostile part: it is created and reaches the host."""
    code, said = t.create("pods", body)
    good = code == 201 and wait(lambda: t.on_host(name) is not None)
    report.check(what + " works without the hostile part", good, (code, said, t.events(name)))


def warned(t, name, words=()):
    return any(e["type"] == "Warning" and all(w in e["message"] for w in words)
               for e in t.events(name))


def refused(t, name, body, what, words=(), namespace="default"):
    """Refused at once, or with an Event and nothing on the host."""
    code, said = t.create("pods", body, namespace)
    if code >= 400:
        return report.check(what, code < 500 and all(w in str(said) for w in words), (code, said))
    told = wait(lambda: warned(t, name, words), 5)
    return report.check(what, told and t.on_host(name) is None,
                        (code, t.events(name), t.on_host(name) is None, t.pod(name)))


def secure(**context):
    return {"securityContext": context}


def row1(a, b, host):
    refused(a, "r1a", pod("r1a", container=secure(privileged=True)), "1 privileged")
    refused(a, "r1b", pod("r1b", container=secure(capabilities={"add": ["SYS_ADMIN"]})),
            "1 SYS_ADMIN")
    refused(a, "r1c", pod("r1c", container=secure(allowPrivilegeEscalation=True)),
            "1 allowPrivilegeEscalation")
    lands(a, "r1", pod("r1", container=secure(runAsUser=1000)), "1 a securityContext")


def row2(a, b, host):
    for i, path in enumerate(["/", "/run/podman/podman.sock", "/var/lib/kubelet", "/dev/nvidia0"]):
        volume = [{"name": "v", "hostPath": {"path": path}}]
        refused(a, "r2%d" % i, pod("r2%d" % i, volumes=volume), "2 hostPath " + path)
    lands(a, "r2", pod("r2", volumes=[{"name": "v", "emptyDir": {}}]), "2 a volume")


def row3(a, b, host):
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        refused(a, "r3" + field.lower(), pod("r3" + field.lower(), **{field: True}), "3 " + field)
    port = {"ports": [{"containerPort": 80, "hostPort": 8080}]}
    refused(a, "r3port", pod("r3port", container=port), "3 hostPort")
    lands(a, "r3", pod("r3", container={"ports": [{"containerPort": 80}]}), "3 a port")


def row4(a, b, host):
    # Tenant a may use nodes labelled pool=a: sim-0. sim-1 and sim-2 are not its own.
    shown = [n["metadata"]["name"] for n in a.api.get("/api/v1/nodes")[1]["items"]]
    report.check("4 nodes outside the selector are not shown", shown == ["sim-0"], shown)
    refused(a, "r4a", pod("r4a", nodeName="sim-1"), "4 nodeName of a foreign node")
    fake = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "sim-2"}, "status": {
        "capacity": {"cpu": "8", "memory": "8Gi", "pods": "10"}}}
    a.api.post("/api/v1/nodes", fake)
    refused(a, "r4b", pod("r4b", nodeName="sim-2"), "4 nodeName of a node the tenant invented")
    code, said = a.create("pods", pod("r4c", schedulerName="nobody"))
    code, said = a.api.post(NS + "pods/r4c/binding", {
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "r4c"},
        "target": {"kind": "Node", "name": "sim-2"}})
    told = code >= 400 or wait(lambda: warned(a, "r4c"), 5)
    report.check("4 a binding to it", told and a.on_host("r4c") is None, (code, a.events("r4c")))
    a.api.delete("/api/v1/nodes/sim-2")
    lands(a, "r4", pod("r4", nodeName="sim-0"), "4 nodeName")


def row5(a, b, host):
    everything = [{"operator": "Exists"}]
    code, said = a.create("pods", pod("r5a", tolerations=everything, nodeSelector={"pool": "b"}))
    told = wait(lambda: [e for e in a.events("r5a") if e["reason"] == "FailedScheduling"], 5)
    report.check("5 a selector for other nodes", told and a.on_host("r5a") is None,
                 (code, said, a.events("r5a")))
    code, said = a.create("pods", pod("r5b", tolerations=everything))
    there = wait(lambda: a.on_host("r5b"))
    report.check("5 a toleration of everything stays on own nodes",
                 there and there["spec"].get("nodeName") == "sim-0", (code, said))
    code, said = a.create("pods", pod("r5c", schedulerName="host-scheduler",
                                      nodeSelector={"pool": "b"}))
    there = wait(lambda: a.on_host("r5c"))
    report.check("5 for the host's scheduler the enforced selector wins, with an Event",
                 there and there["spec"]["nodeSelector"] == {"pool": "a"} and
                 wait(lambda: warned(a, "r5c", ["pool"]), 5), (there, a.events("r5c")))
    lands(a, "r5", pod("r5", nodeSelector={"pool": "a"}), "5 a selector")


def row6(a, b, host):
    def asks(name, **limits):
        return pod(name, container={"resources": {"limits": limits, "requests": limits}})
    refused(b, "r6a", asks("r6a", cpu="9", memory="1Gi"), "6 more cpu than the policy",
            ["requests.cpu", "limited"])
    refused(b, "r6b", asks("r6b", cpu="1", memory="90Gi"), "6 more memory than the policy",
            ["requests.memory"])
    refused(b, "r6c", asks("r6c", cpu="1", memory="1Gi", **{"nvidia.com/gpu": "3"}),
            "6 more GPUs than the policy", ["nvidia.com/gpu"])
    lands(b, "r6", asks("r6", cpu="1", memory="1Gi", **{"nvidia.com/gpu": "1"}), "6 a request")


def tenant_token(t, audiences=None, bound=None):
    spec = {"expirationSeconds": 600}
    if audiences:
        spec["audiences"] = audiences
    if bound:
        spec["boundObjectRef"] = bound
    code, said = t.api.post(NS + "serviceaccounts/default/token", {
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
    return said["status"]["token"] if code == 201 else said


def row7(a, b, host):
    token = tenant_token(a)
    code, _ = host.api.as_token(token).get("/api/v1/namespaces")
    report.check("7 a tenant's token at the host's API", code == 401, code)
    code, _ = host.api.as_token(token).get("/version")
    stranger = Api(host.api.url, host.api.ca)
    report.check("7 nor where it is not needed", code == 401, code)
    for path in ("/api/v1/pods", "/api/v1/nodes", "/api/v1/namespaces/sublet-b/secrets"):
        code, _ = stranger.get(path)
        report.check("7 a stranger gets nothing from " + path, code in (401, 403), code)
    code, _ = a.api.as_token(token).get("/version")
    report.check("7 the token works at its own API", code == 200, code)


def row8(a, b, host):
    code, _ = b.api.as_token(tenant_token(a)).get("/api/v1/namespaces")
    report.check("8 a token of tenant a at tenant b", code == 401, code)
    stolen = Api(b.api.url, b.api.ca, cert=a.api.cert, key=a.api.key)
    try:
        code, _ = stolen.get("/api/v1/namespaces")
    except OSError as error:  # a certificate of another authority may already end the handshake
        code = 401 if "alert" in str(error) else str(error)
    report.check("8 a certificate of tenant a at tenant b", code == 401, code)
    code, _ = a.api.get("/api/v1/namespaces")
    report.check("8 the certificate works at its own API", code == 200, code)


def row9(a, b, host):
    for path in ("pods", "run/default/x/main", "configz", "exec/default/x/main?command=id"):
        for method in ("GET", "POST"):
            code, said = a.api.call(method, "/api/v1/nodes/sim-0/proxy/" + path)
            report.check("9 %s nodes/proxy/%s" % (method, path), 400 <= code < 600 and code != 500,
                         (code, said))
    code, _ = a.api.get("/api/v1/nodes/sim-0")
    report.check("9 the node itself is readable", code == 200, code)


def row10(a, b, host):
    b.create("pods", pod("victim"))
    wait(lambda: b.on_host("victim"))
    crafted = ["victim-x-default-x-b", "..%2f..%2fsublet-b%2fpods%2fvictim-x-default-x-b",
               "%2e%2e", "..", "victim-x-default-x-b%00", "a" * 300,
               "..%2fvictim-x-default-x-b", "victim%2fexec"]
    for name in crafted:
        for tail in ("/log", "/exec?command=id", "/attach", "/portforward"):
            method = "GET" if tail == "/log" else "POST"
            code, said = a.api.call(method, NS + "pods/" + name + tail)
            report.check("10 %s %s" % (tail.split("?")[0], name[:40]),
                         code in (400, 404, 405, 301, 307), (code, said))
    a.create("pods", pod("r10"))
    wait(lambda: a.on_host("r10"))
    code, said = a.api.get(NS + "pods/r10/log")
    # A simulated node has no log to give; e2e/tenants/run.sh reads one.
    report.check("10 an own pod is found", '"r10" not found' not in str(said), (code, said))


def row11(a, b, host):
    claims = {prefix + key: value
              for prefix in ("sublet.dev/", "vcluster.loft.sh/")
              for key, value in (("object-name", "other"), ("object-uid", "1"),
                                 ("object-namespace", "kube-system"), ("managed-by", "b"),
                                 ("namespace", "kube-system"), ("object-host-name", "x"))}
    lands(a, "r11", pod("r11", metadata={"labels": claims, "annotations": claims}),
          "11 a pod with claims")
    there = a.on_host("r11")["metadata"]
    labels, notes = there["labels"], there["annotations"]
    uid = a.pod("r11")["metadata"]["uid"]
    report.check("11 its identity is its own",
                 labels["sublet.dev/managed-by"] == "a" and
                 labels["sublet.dev/namespace"] == "default" and
                 notes["sublet.dev/object-name"] == "r11" and
                 notes["sublet.dev/object-uid"] == uid and
                 notes["sublet.dev/object-namespace"] == "default" and
                 notes["sublet.dev/object-host-name"] == a.host_name("r11"), (labels, notes))
    report.check("11 nothing of another product's arrives",
                 not [k for k in {**labels, **notes} if k.startswith("vcluster.loft.sh/")],
                 (labels, notes))


def row12(a, b, host):
    for space in ("c", "b-x-c"):
        a.api.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace",
                                          "metadata": {"name": space}})
    wait(lambda: all(a.api.get("/api/v1/namespaces/%s/serviceaccounts/default" % s)[0] == 200
                     for s in ("c", "b-x-c")))
    a.create("pods", pod("a-x-b"), "c")
    first = wait(lambda: a.on_host("a-x-b", "c"))
    a.create("pods", pod("a"), "b-x-c")
    told = wait(lambda: [e for e in a.events("a", "b-x-c") if "same" in e["message"]], 5)
    again = a.on_host("a-x-b", "c")
    report.check("12 the second is refused with an Event", told, a.events("a", "b-x-c"))
    report.check("12 the first is untouched", first and again and
                 first["metadata"]["uid"] == again["metadata"]["uid"], (first, again))
    a.create("pods", pod("other"), "b-x-c")
    report.check("12 another name works", wait(lambda: a.on_host("other", "b-x-c")))


def row13(a, b, host):
    keys = {"sidecar.istio.io/inject": "true", "cdi.k8s.io/x": "nvidia.com/gpu=all",
            "k8s.v1.cni.cncf.io/networks": "host", "linkerd.io/inject": "enabled",
            "scheduler.alpha.kubernetes.io/critical-pod": "", "istio.io/rev": "default",
            "seccomp.security.alpha.kubernetes.io/pod": "unconfined"}
    profile = "container.apparmor.security.beta.kubernetes.io/main"
    refused(a, "r13bad", pod("r13bad", metadata={"annotations": {profile: "unconfined"}}),
            "13 " + profile)
    code, said = a.create("pods", pod("r13", metadata={
        "annotations": {**keys, "note": "x"}, "labels": {"istio.io/rev": "x", "app": "web"}}))
    there = code == 201 and wait(lambda: a.on_host("r13"))
    found = {**there["metadata"]["annotations"], **there["metadata"]["labels"]} if there else {}
    report.check("13 only allow-listed keys arrive", there and not [k for k in keys if k in found],
                 (code, said, found))
    report.check("13 plain ones do", found.get("app") == "web" and found.get("note") == "x", found)


def row14(a, b, host):
    a.create("pods", pod("r14"))
    wait(lambda: (a.on_host("r14") or {}).get("status", {}).get("phase") == "Running")

    def debug(name, context):
        return a.api.patch(NS + "pods/r14/ephemeralcontainers", {"spec": {"ephemeralContainers": [
            {"name": name, "image": "example/debug:1", "securityContext": context}]}},
            "application/strategic-merge-patch+json")
    code, said = debug("bad", {"privileged": True})
    names = [c["name"] for c in a.on_host("r14")["spec"].get("ephemeralContainers", [])]
    report.check("14 a privileged ephemeral container", code == 403 and "bad" not in names,
                 (code, said))
    code, said = a.api.patch(NS + "pods/r14", {"spec": {"hostNetwork": True}})
    report.check("14 hostNetwork by a patch", code >= 400, (code, said))
    code, said = debug("good", {})
    there = wait(lambda: [c for c in a.on_host("r14")["spec"].get("ephemeralContainers", [])
                          if c["name"] == "good"])
    report.check("14 a plain ephemeral container works", code == 200 and there, (code, said))


def row15(a, b, host):
    def mount(path, name):
        return pod(name, volumes=[{"name": "v", "emptyDir": {}}], container={
            "volumeMounts": [{"name": "v", "mountPath": "/x", "subPath": path}]})
    for i, path in enumerate(["../../etc", "..", "/etc", "a/../../b"]):
        refused(a, "r15%d" % i, mount(path, "r15%d" % i), "15 subPath " + path)
    lands(a, "r15", mount("a/b", "r15"), "15 a subPath")


def row16(a, b, host):
    for audience in ("https://kubernetes.default.svc", host.api.url, "sublet",
                     "https://kubernetes.default.svc.cluster.local"):
        token = tenant_token(a, [audience])
        code, _ = host.api.as_token(token).get("/api/v1/namespaces")
        report.check("16 a token for audience %s at the host" % audience, code == 401, code)
    volume = [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {
        "path": "t", "audience": "https://kubernetes.default.svc"}}]}}]
    lands(a, "r16", pod("r16", volumes=volume), "16 a pod with a projected token")
    text = str(a.on_host("r16"))
    report.check("16 the host pod asks the host for no token", "serviceAccountToken" not in text,
                 text)


def row17(a, b, host):
    a.create("pods", pod("r17"))
    uid = wait(lambda: a.pod("r17"))["metadata"]["uid"]
    token = tenant_token(a, bound={"apiVersion": "v1", "kind": "Pod", "name": "r17", "uid": uid})
    mine = a.api.as_token(token)
    report.check("17 a bound token works while its pod lives", mine.get("/version")[0] == 200)
    a.api.delete(NS + "pods/r17?gracePeriodSeconds=0")
    wait(lambda: a.pod("r17") is None)
    code = mine.get("/version")[0]
    report.check("17 and not after", wait(lambda: mine.get("/version")[0] == 401, 15), code)


def row18(a, b, host):
    b.create("secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {
        "name": "gold", "annotations": {"sublet.dev/force-sync": "true"}},
        "stringData": {"x": "y"}})
    wait(lambda: b.on_host("gold", kind="secrets"))
    foreign = b.host_name("gold")
    a.create("pods", pod("r18", volumes=[{"name": "v", "secret": {"secretName": foreign}}],
                         imagePullSecrets=[{"name": foreign}]))
    there = wait(lambda: a.on_host("r18"))
    report.check("18 foreign names are translated into one's own",
                 there and there["spec"]["volumes"][0]["secret"]["secretName"] ==
                 a.host_name(foreign) and
                 there["spec"]["imagePullSecrets"] == [{"name": a.host_name(foreign)}], there)
    report.check("18 and are in another namespace anyway",
                 there and there["metadata"]["namespace"] == "sublet-a" != b.hns)
    a.create("secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "own"},
                         "stringData": {"x": "y"}})
    lands(a, "r18own", pod("r18own", volumes=[{"name": "v", "secret": {"secretName": "own"}}]),
          "18 an own Secret")
    report.check("18 it is on the host", wait(lambda: a.on_host("own", kind="secrets")))


def service(name, **spec):
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"ports": [{"port": 80}], **spec}}


def row19(a, b, host):
    a.create("services", service("r19a", selector={"x": "y"}, externalIPs=["10.0.0.53"]))
    there = wait(lambda: a.on_host("r19a", kind="services"))
    report.check("19 externalIPs do not reach the host",
                 there and "externalIPs" not in there["spec"], there)
    code, said = b.create("services", service("np", type="NodePort",
                                              ports=[{"port": 80, "nodePort": 30777}]))
    code, said = a.create("services", service("r19b", type="NodePort",
                                              ports=[{"port": 80, "nodePort": 30777}]))
    report.check("19 a node port that another tenant holds", code == 422, (code, said))
    report.check("19 it names nobody", "sublet-b" not in str(said), said)
    code, said = a.create("services", {"apiVersion": "v1", "kind": "Service",
                                       "metadata": {"name": "r19c"}, "spec": {
                                           "type": "ExternalName",
                                           "externalName": "kubernetes.default.svc"}})
    report.check("19 ExternalName stays in the tenant",
                 code == 201 and a.on_host("r19c", kind="services") is None, (code, said))
    code, said = a.create("endpoints", {
        "apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "r19a"},
        "subsets": [{"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": 6443}]}]})
    report.check("19 Endpoints at a loopback address", code == 422, (code, said))
    spaces = {s["metadata"]["namespace"] for s in host.api.get("/api/v1/services")[1]["items"]
              if "r19" in s["metadata"]["name"]}
    report.check("19 everything is in the tenant's namespace", spaces == {a.hns}, spaces)
    code, said = a.create("services", service("r19", selector={"x": "y"}))
    there = a.on_host("r19", kind="services")
    report.check("19 a plain Service works, with the host's address",
                 code == 201 and there and
                 there["spec"]["clusterIP"] == said["spec"]["clusterIP"], (code, said))


def ingress(name, host_name, path="/"):
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": name},
            "spec": {"rules": [{"host": host_name, "http": {"paths": [{
                "path": path, "pathType": "Prefix",
                "backend": {"service": {"name": "web", "port": {"number": 80}}}}]}}]}}


NETWORKING = "/apis/networking.k8s.io/v1"


def row20(a, b, host):
    b.create("ingresses", ingress("shop", "shop.example"), group=NETWORKING)
    wait(lambda: b.on_host("shop", kind="ingresses", group=NETWORKING))
    a.create("ingresses", ingress("r20", "shop.example"), group=NETWORKING)
    told = wait(lambda: warned(a, "r20", ["shop.example"]), 5)
    report.check("20 a host that another tenant holds", told and a.on_host(
        "r20", kind="ingresses", group=NETWORKING) is None, a.events("r20"))
    report.check("20 it names nobody", not warned(a, "r20", ["sublet-b"]), a.events("r20"))
    a.create("ingresses", ingress("r20own", "mine.example"), group=NETWORKING)
    report.check("20 an own host works", wait(lambda: a.on_host("r20own", kind="ingresses",
                                                                group=NETWORKING)))


def policy(name, **spec):
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": name}, "spec": {"podSelector": {}, **spec}}


def row21(a, b, host):
    def peers(name):
        there = wait(lambda: a.on_host(name, kind="networkpolicies", group=NETWORKING))
        rules = there["spec"].get("ingress", []) if there else None
        return there, [p for r in rules or [] for p in r.get("from", [None])]
    own = "sublet.dev/managed-by"
    for i, spec in enumerate([
            {"ingress": [{}]}, {"ingress": [{"from": []}]},
            {"ingress": [{"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]},
            {"ingress": [{"from": [{"namespaceSelector": {}}]}]}]):
        name = "r21%d" % i
        a.create("networkpolicies", policy(name, policyTypes=["Ingress"], **spec),
                 group=NETWORKING)
        there, found = peers(name)
        good = there and all(p and p.get("podSelector", {}).get("matchLabels", {}).get(own) == "a"
                             for p in found)
        report.check("21 %s opens to one's own pods only" % spec, good, there)
    report.check("21 the host's own policy stands",
                 host.api.get(NETWORKING + "/namespaces/sublet-a/networkpolicies/sublet-work-a")[0]
                 == 200)
    a.create("networkpolicies", policy("r21", policyTypes=["Ingress"], ingress=[
        {"from": [{"podSelector": {"matchLabels": {"app": "web"}}}]}]), group=NETWORKING)
    there, found = peers("r21")
    report.check("21 a plain policy works", there and
                 found[0]["podSelector"]["matchLabels"].get("app") == "web", there)


def row22(a, b, host):
    code, said = a.api.post("/apis/scheduling.k8s.io/v1/priorityclasses", {
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "top"}, "value": 1000000000})
    a.create("pods", pod("r22", priorityClassName="top"))
    there = wait(lambda: a.on_host("r22"))
    report.check("22 a priority of the tenant's own is worth nothing on the host",
                 there and there["spec"].get("priority", 0) <= 0, there)
    report.check("22 with an Event", wait(lambda: any("priority" in e["message"] for e in a.events("r22")), 5),
                 a.events("r22"))
    code, said = b.api.post("/apis/scheduling.k8s.io/v1/priorityclasses", {
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "top"}, "value": 1000000000})
    b.create("pods", pod("r22", priorityClassName="top", container={"resources": {
        "limits": {"cpu": "1", "memory": "1Gi"}}}))
    there = wait(lambda: b.on_host("r22"))
    report.check("22 a synced class is capped at the policy",
                 there and there["spec"].get("priority") == 1000, (there, b.events("r22")))
    report.check("22 with an Event on it", wait(lambda: warned(b, "top", ["1000"]), 5),
                 b.events("top"))
    a.create("pods", pod("r22critical", priorityClassName="system-node-critical"))
    wait(lambda: a.on_host("r22critical"), 3)
    there = a.on_host("r22critical")
    report.check("22 system-node-critical", there is None or there["spec"].get("priority", 0) <= 0,
                 there)


def row23(a, b, host):
    before = host.api.get("/api/v1/persistentvolumes")[1]["items"]
    code, said = a.api.post("/api/v1/persistentvolumes", {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "evil"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                 "hostPath": {"path": "/"}, "claimRef": {"namespace": "default", "name": "r23"}}})
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "r23"},
             "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "evil",
                      "resources": {"requests": {"storage": "1Gi"}}}}
    a.create("persistentvolumeclaims", claim)
    there = wait(lambda: a.on_host("r23", kind="persistentvolumeclaims"))
    after = host.api.get("/api/v1/persistentvolumes")[1]["items"]
    report.check("23 the volume is not on the host",
                 not [v for v in after if "hostPath" in v["spec"] and
                      v["spec"]["hostPath"]["path"] == "/"], after)
    report.check("23 nor does its claim name it",
                 there is None or there["spec"].get("volumeName") != "evil", there)
    claim["metadata"]["name"] = "r23own"
    claim["spec"].pop("volumeName")
    a.create("persistentvolumeclaims", claim)
    report.check("23 a plain claim works",
                 wait(lambda: a.on_host("r23own", kind="persistentvolumeclaims")), before)


def row24(a, b, host):
    def facts():
        node = host.api.get("/api/v1/nodes/sim-0")[1]
        return (node["metadata"]["uid"], node["metadata"].get("labels"), node["spec"].get("taints"),
                node["spec"].get("unschedulable"), node["status"]["allocatable"])
    before = facts()
    a.api.patch("/api/v1/nodes/sim-0", {"metadata": {"labels": {"mine": "yes"}}, "spec": {
        "taints": [{"key": "mine", "effect": "NoExecute"}], "unschedulable": True}})
    a.api.patch("/api/v1/nodes/sim-0/status", {"status": {"allocatable": {"cpu": "10000"}}})
    time.sleep(0.3)
    report.check("24 a patched virtual node leaves the host's alone", facts() == before, facts())
    code, said = a.api.delete("/api/v1/nodes/sim-0")
    time.sleep(0.3)
    report.check("24 a deleted one too", facts() == before, facts())
    report.check("24 it comes back", wait(lambda: a.api.get("/api/v1/nodes/sim-0")[0] == 200))
    a.create("pods", pod("r24"))
    report.check("24 and is used", wait(lambda: a.on_host("r24")), a.events("r24"))


def row25(a, b, host):
    key = os.path.join(host.work, "csr.key")
    subprocess.run(["openssl", "req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", key,
                    "-subj", "/O=system:masters/CN=evil", "-out", key + ".csr"], check=True,
                   capture_output=True)
    request = base64.b64encode(open(key + ".csr", "rb").read()).decode()
    group = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

    def ask(name, signer):
        code, said = a.api.post(group, {
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": name}, "spec": {"request": request, "signerName": signer,
                                                 "usages": ["client auth"]}})
        if code != 201:
            return None
        said["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "x"}]}
        a.api.call("PUT", group + "/" + name + "/approval", said)
        signed = wait(lambda: a.api.get(group + "/" + name)[1].get("status", {}).get(
            "certificate"), 2)
        return base64.b64decode(signed).decode() if signed else None
    for name, signer in (("evil", "kubernetes.io/kube-apiserver-client"), ("evil2", "host/signer")):
        cert = ask(name, signer)
        if cert is None:
            report.check("25 %s: nothing is signed" % signer, True)
            continue
        for where, api in (("the host", host.api), ("another tenant", b.api)):
            try:
                code = api.as_certificate(cert, open(key).read()).get("/api/v1/nodes")[0]
            except OSError:
                code = 401
            report.check("25 a certificate of %s at %s" % (signer, where), code in (401, 403), code)
    code, said = a.api.get(group)
    report.check("25 requests are kept", code == 200, code)


def row27(a, b, host):
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


def row28(a, b, host):
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


def row29(a, b, host):
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


def row31(a, b, host):
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


def row32(a, b, host):
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


def row33(a, b, host):
    def with_env(name, *names, **more):
        return pod(name, container={"env": [{"name": n, "value": "all"} for n in names]}, **more)
    share = {"metadata": {"annotations": {"gpu-fraction": "0.5"}}}
    refused(a, "r33a", with_env("r33a", "NVIDIA_VISIBLE_DEVICES"), "33 NVIDIA_VISIBLE_DEVICES")
    for name in ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "CUDA_VISIBLE_DEVICES"):
        refused(a, "r33b", with_env("r33b", name, **share), "33 %s with a slice" % name)
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT"):
        refused(a, "r34", with_env("r34", name, **share), "34 %s with a slice" % name)
    lands(a, "r33", with_env("r33", "FINE"), "33 a variable")
    found = {e["name"]: e.get("value")
             for e in a.on_host("r33")["spec"]["containers"][0].get("env", [])}
    report.check("33 an image that asks for all devices gets none",
                 found.get("NVIDIA_VISIBLE_DEVICES") == "void" and found.get("FINE") == "all", found)
    lands(a, "r34ok", with_env("r34ok", "LD_PRELOAD"), "34 LD_PRELOAD without a slice")


def row35(a, b, host):
    mine = a.syncer_identity()
    gpu = "/apis/gpu.sublet.dev/v1alpha1"
    usage = "/apis/sublet.dev/v1alpha1/nodeusages"
    for what, answer in (
            ("create a GpuNode", mine.post(gpu + "/gpunodes", {
                "apiVersion": "gpu.sublet.dev/v1alpha1", "kind": "GpuNode",
                "metadata": {"name": "x"}, "spec": {}})),
            ("patch a NodeUsage", mine.patch(usage + "/sim-0", {"status": {"free": {"cpu": "1000"}}})),
            ("patch its status", mine.patch(usage + "/sim-0/status",
                                            {"status": {"free": {"cpu": "1000"}}})),
            ("grant itself a slice", mine.patch(gpu + "/namespaces/sublet-a/gpuslices/x/status",
                                                {"status": {"phase": "Granted"}})),
            ("write into another's slices", mine.post(gpu + "/namespaces/sublet-b/gpuslices", {
                "apiVersion": "gpu.sublet.dev/v1alpha1", "kind": "GpuSlice",
                "metadata": {"name": "x"}, "spec": {}}))):
        report.check("35 " + what + " with the syncer's credential", answer[0] == 403, answer)
    code, said = mine.get(usage)
    report.check("35 it may read NodeUsage", code == 200, (code, said))
    code, said = a.api.post(gpu + "/gpunodes", {
        "apiVersion": "gpu.sublet.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": "sim-0"},
        "spec": {}})
    code, said = host.api.get(gpu + "/gpunodes")
    report.check("35 what the tenant writes at home stays there", code != 200 or not said["items"],
                 said)


def row36(a, b, host):
    def asks(i, notes):
        return pod("r36%d" % i, metadata={"annotations": notes})
    for i, notes in enumerate([
            {"gpu-fraction": "1.5"}, {"gpu-fraction": "-0.5"}, {"gpu-fraction": "NaN"},
            {"gpu-fraction": "1e308"}, {"gpu-fraction": "0.5 "}, {"gpu-fraction": "0"},
            {"gpu-memory": "-1"}, {"gpu-memory": "1e3"}, {"gpu-memory": "99999999999999999999"},
            {"gpu-fraction": "0.5", "gpu-memory": "1000"}]):
        code, said = a.create("pods", asks(i, notes))
        report.check("36 %s" % notes, 400 <= code < 500 and "gpu-" in str(said), (code, said))
    code, said = a.create("pods", asks(99, {"gpu-fraction": "0.5"}))
    report.check("36 0.5 works", code == 201, (code, said))


def row39(a, b, host):
    mine = a.syncer_identity()
    for path in ("/api/v1/pods", "/api/v1/namespaces/sublet-b/pods", "/api/v1/secrets",
                 "/api/v1/namespaces/sublet-b/secrets", "/api/v1/namespaces",
                 "/api/v1/namespaces/kube-system/secrets", "/apis/apps/v1/statefulsets",
                 "/api/v1/events", "/apis/rbac.authorization.k8s.io/v1/clusterroles"):
        code, _ = mine.get(path)
        report.check("39 GET %s with the syncer's credential" % path, code == 403, code)
    for what, answer in (
            ("a pod in another namespace", mine.post("/api/v1/namespaces/sublet-b/pods", pod("x"))),
            ("a Role in its own", mine.post(
                "/apis/rbac.authorization.k8s.io/v1/namespaces/sublet-a/roles",
                {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                 "metadata": {"name": "x"}, "rules": []})),
            ("a taint on a node", mine.patch("/api/v1/nodes/sim-0", {"spec": {"unschedulable": True}})),
            ("a token of another account", mine.post(
                "/api/v1/namespaces/kube-system/serviceaccounts/default/token",
                {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}))):
        report.check("39 " + what, answer[0] == 403, answer)
    report.check("39 its own pods it may list",
                 mine.get("/api/v1/namespaces/sublet-a/pods")[0] == 200)
    report.check("39 and nodes", mine.get("/api/v1/nodes")[0] == 200)


def row30(a, b, host, work):
    """A tenant on a small disk; needs root for the mount, which is this process's own."""
    small = os.path.join(work, "small")
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
    import sqlite3
    connection = sqlite3.connect(good)
    tables = [r[0] for r in connection.execute("select name from sqlite_master where type='table'")]
    connection.close()
    report.check("40 the file stays an ordinary database", tables and foreign == 200, tables)
    c.start()
    report.check("40 the right file works again", c.api.get(NS + "configmaps/x")[0] == 200)


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


# Rows 37 and 38, and the files of row 34, need a device and a container.
ROWS = [row1, row2, row3, row4, row5, row6, row7, row8, row9, row10, row11, row12, row13, row14,
        row15, row16, row17, row18, row19, row20, row21, row22, row23, row24, row25, row27, row28,
        row29, row31, row32, row33, row35, row36, row39]
PLACED = [row26, row40]

VALUES_A = """
sync:
  toHost:
    ingresses: {enabled: true}
    networkPolicies: {enabled: true}
    pods: {hybridScheduling: {hostSchedulers: [host-scheduler]}}
  fromHost: {nodes: {selector: {labels: {pool: a}}}}
policies: {networkPolicy: {enabled: true}}
"""
VALUES_B = """
sync:
  toHost:
    ingresses: {enabled: true}
    priorityClasses: {enabled: true, max: 1000}
policies:
  gpu: {devices: 2}
  resourceQuota: {enabled: true, quota: {requests.cpu: 8, requests.memory: 20Gi}}
"""


def main(wanted):
    with Workplace() as place:
        host = place.host(3, "--gpus", "8")
        host.api.patch("/api/v1/nodes/sim-0", {"metadata": {"labels": {"pool": "a"}}})
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            a, b = [f.result() for f in [pool.submit(place.tenant, host, "a", VALUES_A),
                                         pool.submit(place.tenant, host, "b", VALUES_B)]]
        for row in ROWS + PLACED + [row30]:
            if wanted and row.__name__ not in wanted:
                continue
            try:
                if row in PLACED:
                    row(a, b, host, place)
                elif row is row30:
                    if os.geteuid() == 0:
                        row(a, b, host, place.work)
                    else:
                        report.skip("30 a full disk", "not root")
                else:
                    row(a, b, host)
            except Exception as error:  # a broken row is a failed one; the others still run
                import traceback
                report.check(row.__name__, False, "".join(traceback.format_exception(error))[-1200:])
            for control in (host, a, b):
                if control.child.poll() is not None:
                    report.check("%s survives %s" % (control.name, row.__name__), False,
                                 control.log()[-800:])
                    control.start()
    return report.close()


if __name__ == "__main__":
    sys.exit(main(["row" + r for r in sys.argv[1:]]))
