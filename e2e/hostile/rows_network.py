"""Services, Ingresses, NetworkPolicies and volumes that reach for the host."""
from common import report, warned
from plain import wait


def service(name, **spec):
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"ports": [{"port": 80}], **spec}}


def row19(a, b, host, place):
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


def row20(a, b, host, place):
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


def row21(a, b, host, place):
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


def row23(a, b, host, place):
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
