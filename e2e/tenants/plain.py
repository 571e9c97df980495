"""A host and tenants as plain processes: `sublet serve --role=host`, simulated nodes, and one
`sublet serve --role=tenant` per tenant, with exactly the rights that `sublet create` gives it. No
containers, no root. Used by e2e/hostile, e2e/tenants/rows.py and e2e/bench/tenants.py."""
import base64
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time

BIN = os.environ["SUBLET_BIN"]
KUBECTL = os.path.join(os.environ.get("SUBLET_CLIENTS", ""), "kubectl-1.36")


class Api:
    """One identity at one API server. Answers are (code, parsed JSON or text)."""

    def __init__(self, url, ca, cert=None, key=None, token=None):
        self.url, self.ca, self.cert, self.key, self.token = url, ca, cert, key, token
        host = url.split("//")[1]
        self.host, self.port = host.rsplit(":", 1)[0], int(host.rsplit(":", 1)[1])
        self.local = threading.local()
        self.folder = tempfile.mkdtemp(prefix="sublet-id-")

    def _write(self, name, text):
        path = os.path.join(self.folder, name)
        if not os.path.exists(path):
            with open(path, "w") as out:
                out.write(text)
        return path

    def context(self):
        context = ssl.create_default_context(cadata=self.ca)
        context.check_hostname = False
        if self.cert:
            context.load_cert_chain(self._write("crt", self.cert), self._write("key", self.key))
        return context

    def connection(self):
        if getattr(self.local, "connection", None) is None:
            if not hasattr(self.local, "tls"):
                self.local.tls = self.context()
            self.local.connection = http.client.HTTPSConnection(
                self.host, self.port, context=self.local.tls, timeout=60)
        return self.local.connection

    def call(self, method, path, body=None, kind="application/json", headers=None):
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        send = {"Content-Type": kind, **(headers or {})}
        if self.token:
            send["Authorization"] = "Bearer " + self.token
        for attempt in range(2):
            connection = self.connection()
            try:
                connection.request(method, path, data, send)
                answer = connection.getresponse()
                raw = answer.read()
                break
            except (OSError, http.client.HTTPException):
                connection.close()
                self.local.connection = None
                if attempt:
                    raise
        try:
            return answer.status, json.loads(raw)
        except ValueError:
            return answer.status, raw.decode(errors="replace")

    def get(self, path):
        return self.call("GET", path)

    def post(self, path, body):
        return self.call("POST", path, body)

    def patch(self, path, body, kind="application/merge-patch+json"):
        return self.call("PATCH", path, body, kind)

    def delete(self, path, body=None):
        return self.call("DELETE", path, body)

    def as_token(self, token):
        return Api(self.url, self.ca, token=token)

    def as_certificate(self, cert, key):
        return Api(self.url, self.ca, cert=cert, key=key)


def read_kubeconfig(path):
    text = open(path).read()
    get = lambda key: re.search(key + r":\s*\"?([^\s\"]+)", text).group(1)
    decode = lambda key: base64.b64decode(get(key)).decode()
    return Api(get("server"), decode("certificate-authority-data"),
               decode("client-certificate-data"), decode("client-key-data"))


def wait(check, seconds=45, pause=0.05):
    """The first true value of check(), or its last one."""
    end = time.monotonic() + seconds
    while True:
        value = check()
        if value or time.monotonic() > end:
            return value
        time.sleep(pause)


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Process:
    def __init__(self, name, work, arguments, env=None, program=BIN):
        self.name, self.work, self.arguments = name, work, arguments
        self.env, self.program = {**os.environ, **(env or {})}, program
        self.child = None

    def start(self):
        log = open(os.path.join(self.work, self.name + ".log"), "ab")
        self.child = subprocess.Popen([self.program] + self.arguments, stdout=log, stderr=log, env=self.env,
                                      stdin=subprocess.DEVNULL)
        log.close()
        return self

    @property
    def pid(self):
        return self.child.pid

    def stop(self, how=signal.SIGTERM):
        if self.child is not None and self.child.poll() is None:
            self.child.send_signal(how)
            try:
                self.child.wait(20)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        return self.child.returncode if self.child else 0

    def status_kib(self, field):
        for line in open("/proc/%d/%s" % (self.pid, "smaps_rollup" if field == "Pss" else "status")):
            if line.startswith(field + ":"):
                return int(line.split()[1])
        return 0

    def cpu_seconds(self):
        fields = open("/proc/%d/stat" % self.pid).read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Serving(Process):
    """A control plane with its administrator's Api in .api."""

    def __init__(self, name, work, arguments, env=None):
        self.kubeconfig = os.path.join(work, name + ".kubeconfig")
        self.data = os.path.join(work, name)
        super().__init__(name, work, ["serve", "--data-dir", self.data, "--write-kubeconfig",
                                      self.kubeconfig] + arguments, env)
        self.api = None

    def start(self):
        if os.path.exists(self.kubeconfig):
            os.remove(self.kubeconfig)
        super().start()
        wait(lambda: os.path.exists(self.kubeconfig) or self.child.poll() is not None)
        if self.child.poll() is not None:
            raise RuntimeError(self.name + " ended: " + self.log()[-2000:])
        self.api = read_kubeconfig(self.kubeconfig)
        wait(lambda: self.ready())
        return self

    def ready(self):
        try:
            return self.api.get("/readyz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def log(self):
        return open(os.path.join(self.work, self.name + ".log"), errors="replace").read()


class Host(Serving):
    def __init__(self, work):
        self.port = free_port()
        super().__init__("host", work, ["--role", "host", "--listen", "127.0.0.1:%d" % self.port])
        self.nodes = []

    def simulate(self, count, *arguments):
        process = Process("nodes%d" % len(self.nodes), self.work,
                          ["node", "--kubeconfig", self.kubeconfig, "--simulate", str(count),
                           *arguments]).start()
        self.nodes.append(process)
        return process

    def wait_nodes(self, count):
        def ready():
            items = self.api.get("/api/v1/nodes")[1]["items"]
            return sum(any(c["type"] == "Ready" and c["status"] == "True"
                           for c in n["status"].get("conditions", [])) for n in items) >= count
        assert wait(ready), "nodes are not Ready"

    def pods(self, namespace):
        return {p["metadata"]["name"]: p
                for p in self.api.get("/api/v1/namespaces/%s/pods" % namespace)[1]["items"]}

    def stop(self, how=signal.SIGTERM):
        for process in self.nodes:
            process.stop()
        return super().stop(how)


class Tenant(Serving):
    """What `sublet create` applies, and the control plane as a process instead of a pod."""

    def __init__(self, host, name, values="", namespace=None):
        self.tenant, self.hns, self.host = name, namespace or "sublet-" + name, host
        label = namespace or name  # two tenants may share a name
        self.values = os.path.join(host.work, label + ".values.yaml")
        with open(self.values, "w") as out:
            out.write(values)
        self.port = free_port()
        self.install()
        token = host.api.post(
            "/api/v1/namespaces/%s/serviceaccounts/sublet-%s/token" % (self.hns, name),
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
        assert token[0] == 201, token
        self.token = token[1]["status"]["token"]
        self.host_kubeconfig = os.path.join(host.work, label + ".host.kubeconfig")
        with open(self.host_kubeconfig, "w") as out:
            out.write("apiVersion: v1\nkind: Config\ncurrent-context: h\n"
                      "clusters: [{name: h, cluster: {server: '%s', certificate-authority-data: %s}}]\n"
                      "contexts: [{name: h, context: {cluster: h, user: h}}]\n"
                      "users: [{name: h, user: {token: '%s'}}]\n" %
                      (host.api.url, base64.b64encode(host.api.ca.encode()).decode(), self.token))
        super().__init__(label, host.work,
                         ["--role", "tenant", "--tenant", name, "--host-namespace", self.hns,
                          "--host-kubeconfig", self.host_kubeconfig, "--config", self.values,
                          "--listen", "127.0.0.1:%d" % self.port])

    def install(self):
        printed = subprocess.run([BIN, "create", self.tenant, "-n", self.hns, "--print", "--image",
                                  "example/sublet:1", "-f", self.values],
                                 check=True, capture_output=True, text=True).stdout
        plain = [d for d in printed.split("---\n") if d.strip() and "kind: StatefulSet" not in d]
        applied = subprocess.run([KUBECTL, "--kubeconfig", self.host.kubeconfig, "apply", "-f", "-"],
                                 input="---\n".join(plain), capture_output=True, text=True)
        assert applied.returncode == 0, applied.stderr

    def syncer_identity(self):
        return self.host.api.as_token(self.token)

    def start(self):
        super().start()
        # The default account is there and the host's nodes are shown: the tenant is whole.
        wait(lambda: self.api.get("/api/v1/namespaces/default/serviceaccounts/default")[0] == 200)
        wait(lambda: self.api.get("/api/v1/nodes")[1]["items"])
        return self

    def host_name(self, name, namespace="default"):
        return "%s-x-%s-x-%s" % (name, namespace, self.tenant)

    def on_host(self, name, namespace="default", kind="pods", group="/api/v1"):
        code, found = self.host.api.get("%s/namespaces/%s/%s/%s" % (
            group, self.hns, kind, self.host_name(name, namespace)))
        return found if code == 200 else None

    def events(self, name, namespace="default"):
        items = self.api.get("/api/v1/namespaces/%s/events" % namespace)[1]["items"]
        return [e for e in items if e["involvedObject"].get("name") == name]

    def pod(self, name, namespace="default"):
        code, found = self.api.get("/api/v1/namespaces/%s/pods/%s" % (namespace, name))
        return found if code == 200 else None

    def create(self, kind, body, namespace="default", group="/api/v1"):
        return self.api.post("%s/namespaces/%s/%s" % (group, namespace, kind), body)


def pod(name, containers=None, metadata=None, container=None, **spec):
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **(metadata or {})},
            "spec": {"terminationGracePeriodSeconds": 0, **spec}}
    body["spec"]["containers"] = containers or [
        {"name": "main", "image": "example/app:1", **(container or {})}]
    return body


class Report:
    """One line per check; the closing line is "N passed, N failed, N skipped"."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def check(self, name, good, said=""):
        if good:
            self.passed += 1
            print("ok    %s" % name, flush=True)
        else:
            self.failed += 1
            print("FAIL  %s\n      %s" % (name, str(said)[:1500]), flush=True)
        return good

    def skip(self, name, why):
        self.skipped += 1
        print("skip  %s (%s)" % (name, why), flush=True)

    def close(self):
        print("%d passed, %d failed, %d skipped" % (self.passed, self.failed, self.skipped))
        return 1 if self.failed else 0


class Workplace:
    """A temporary folder whose processes end with it."""

    def __enter__(self):
        self.work = tempfile.mkdtemp(prefix="sublet-plain-")
        self.started = []
        return self

    def __exit__(self, *error):
        for process in reversed(self.started):
            process.stop()
        if error[0] is not None and os.environ.get("SUBLET_KEEP"):
            print("kept:", self.work)
        else:
            shutil.rmtree(self.work, ignore_errors=True)

    def host(self, nodes=3, *arguments):
        """The host that SUBLET_SERVER names: sublet's own, or upstream's servers."""
        host = Host(self.work)
        if os.environ.get("SUBLET_SERVER") == "upstream":
            from upstream_host import UpstreamHost
            host = UpstreamHost(self.work)
        self.started.append(host)
        host.start()
        if nodes:
            host.simulate(nodes, *arguments)
            host.wait_nodes(nodes)
        return host

    def tenant(self, host, name, values="", namespace=None):
        tenant = Tenant(host, name, values, namespace).start()
        self.started.append(tenant)
        return tenant
