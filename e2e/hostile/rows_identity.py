"""Whose credential reaches what: tokens, certificates, tunnels, signers, the syncer's own right."""
import base64
import os
import subprocess

from common import NS, lands, report
from plain import Api, pod, wait


def tenant_token(t, audiences=None, bound=None):
    spec = {"expirationSeconds": 600}
    if audiences:
        spec["audiences"] = audiences
    if bound:
        spec["boundObjectRef"] = bound
    code, said = t.api.post(NS + "serviceaccounts/default/token", {
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
    return said["status"]["token"] if code == 201 else said


def row7(a, b, host, place):
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


def row8(a, b, host, place):
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


def row9(a, b, host, place):
    tries = [(method, path) for method in ("GET", "POST") for path in (
        "run/default/x/main", "configz", "stats/summary", "exec/default/x/main?command=id",
        "containerLogs/default/x-x-default-x-b/main", "containerLogs/sublet-b/x-x-default-x-b/main")]
    for method, path in tries + [("POST", "pods")]:
        code, said = a.api.call(method, "/api/v1/nodes/sim-0/proxy/" + path)
        report.check("9 %s nodes/proxy/%s" % (method, path), 400 <= code < 600 and code != 500,
                     (code, said))
    b.create("pods", pod("r9-of-b", nodeName="sim-0"))
    wait(lambda: b.on_host("r9-of-b"))
    code, said = a.api.get("/api/v1/nodes/sim-0/proxy/pods")
    own = {p["metadata"]["uid"] for p in a.api.get("/api/v1/pods")[1]["items"]}
    report.check("9 of the kubelet's pods a tenant sees its own", code == 200 and
                 all(p["metadata"]["uid"] in own for p in said["items"]), (code, said))
    code, _ = a.api.get("/api/v1/nodes/sim-0")
    report.check("9 the node itself is readable", code == 200, code)


def row10(a, b, host, place):
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


def row16(a, b, host, place):
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


def row17(a, b, host, place):
    a.create("pods", pod("r17"))
    uid = wait(lambda: a.pod("r17"))["metadata"]["uid"]
    token = tenant_token(a, bound={"apiVersion": "v1", "kind": "Pod", "name": "r17", "uid": uid})
    mine = a.api.as_token(token)
    report.check("17 a bound token works while its pod lives", mine.get("/version")[0] == 200)
    a.api.delete(NS + "pods/r17?gracePeriodSeconds=0")
    wait(lambda: a.pod("r17") is None)
    code = mine.get("/version")[0]
    report.check("17 and not after", wait(lambda: mine.get("/version")[0] == 401, 15), code)


def row25(a, b, host, place):
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


def row39(a, b, host, place):
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
