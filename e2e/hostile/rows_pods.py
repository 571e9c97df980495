"""What a pod may ask for: privileges, volumes, nodes, amounts, tokens, names."""
import time

from common import NS, lands, refused, report, secure, warned
from plain import pod, wait


def row1(a, b, host, place):
    refused(a, "r1a", pod("r1a", container=secure(privileged=True)), "1 privileged")
    refused(a, "r1b", pod("r1b", container=secure(capabilities={"add": ["SYS_ADMIN"]})),
            "1 SYS_ADMIN")
    refused(a, "r1c", pod("r1c", container=secure(allowPrivilegeEscalation=True)),
            "1 allowPrivilegeEscalation")
    lands(a, "r1", pod("r1", container=secure(runAsUser=1000)), "1 a securityContext")


def row2(a, b, host, place):
    for i, path in enumerate(["/", "/run/podman/podman.sock", "/var/lib/kubelet", "/dev/nvidia0"]):
        volume = [{"name": "v", "hostPath": {"path": path}}]
        refused(a, "r2%d" % i, pod("r2%d" % i, volumes=volume), "2 hostPath " + path)
    lands(a, "r2", pod("r2", volumes=[{"name": "v", "emptyDir": {}}]), "2 a volume")


def row3(a, b, host, place):
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        refused(a, "r3" + field.lower(), pod("r3" + field.lower(), **{field: True}), "3 " + field)
    port = {"ports": [{"containerPort": 80, "hostPort": 8080}]}
    refused(a, "r3port", pod("r3port", container=port), "3 hostPort")
    lands(a, "r3", pod("r3", container={"ports": [{"containerPort": 80}]}), "3 a port")


def row4(a, b, host, place):
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


def row5(a, b, host, place):
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


def row6(a, b, host, place):
    def asks(name, **limits):
        return pod(name, container={"resources": {"limits": limits, "requests": limits}})
    refused(b, "r6a", asks("r6a", cpu="9", memory="1Gi"), "6 more cpu than the policy",
            ["requests.cpu", "limited"])
    refused(b, "r6b", asks("r6b", cpu="1", memory="90Gi"), "6 more memory than the policy",
            ["requests.memory"])
    refused(b, "r6c", asks("r6c", cpu="1", memory="1Gi", **{"nvidia.com/gpu": "3"}),
            "6 more GPUs than the policy", ["nvidia.com/gpu"])
    lands(b, "r6", asks("r6", cpu="1", memory="1Gi", **{"nvidia.com/gpu": "1"}), "6 a request")


def row11(a, b, host, place):
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


def row12(a, b, host, place):
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


def row13(a, b, host, place):
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


def row14(a, b, host, place):
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


def row15(a, b, host, place):
    def mount(path, name):
        return pod(name, volumes=[{"name": "v", "emptyDir": {}}], container={
            "volumeMounts": [{"name": "v", "mountPath": "/x", "subPath": path}]})
    for i, path in enumerate(["../../etc", "..", "/etc", "a/../../b"]):
        refused(a, "r15%d" % i, mount(path, "r15%d" % i), "15 subPath " + path)
    lands(a, "r15", mount("a/b", "r15"), "15 a subPath")


def row18(a, b, host, place):
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


def row22(a, b, host, place):
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


def row24(a, b, host, place):
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
