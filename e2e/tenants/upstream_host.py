"""A host that is upstream's: etcd, kube-apiserver and kube-controller-manager from the folder in
SUBLET_UPSTREAM, as plain processes, with simulated nodes and with what `sublet host install` puts on a
real cluster. The tests ask it the same as plain.Host."""
import base64
import os
import shutil
import subprocess

from plain import BIN, Host, Process, free_port, read_kubeconfig, wait

HERE = os.path.dirname(os.path.abspath(__file__))
UPSTREAM = os.environ.get("SUBLET_UPSTREAM") or os.path.join(HERE, "..", "..", "build", "upstream")


def missing():
    """Why it cannot run here; "" when it can."""
    if not os.access(os.path.join(UPSTREAM, "kube-apiserver"), os.X_OK):
        return "no kube-apiserver in SUBLET_UPSTREAM"
    return "" if shutil.which("etcd") else "etcd is not installed"


class UpstreamHost(Host):
    def __init__(self, work):
        super().__init__(work)
        self.folder = os.path.join(work, "upstream")
        self.daemons = []

    def path(self, name):
        return os.path.join(self.folder, name)

    def openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)

    def certificate(self, name, subject, extension="extendedKeyUsage=clientAuth"):
        with open(self.path(name + ".ext"), "w") as out:
            out.write(extension + "\n")
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                     "-subj", subject, "-keyout", self.path(name + ".key"), "-out",
                     self.path(name + ".csr"))
        self.openssl("x509", "-req", "-in", self.path(name + ".csr"), "-CA", self.path("ca.crt"),
                     "-CAkey", self.path("ca.key"), "-CAcreateserial", "-days", "2", "-extfile",
                     self.path(name + ".ext"), "-out", self.path(name + ".crt"))

    def write_kubeconfig(self, path, name):
        data = lambda file: base64.b64encode(open(self.path(file), "rb").read()).decode()
        with open(path, "w") as out:
            out.write("apiVersion: v1\nkind: Config\ncurrent-context: up\n"
                      "clusters: [{name: up, cluster: {server: \"https://127.0.0.1:%d\",\n"
                      "  certificate-authority-data: \"%s\"}}]\n"
                      "contexts: [{name: up, context: {cluster: up, user: up}}]\n"
                      "users: [{name: up, user: {client-certificate-data: \"%s\",\n"
                      "  client-key-data: \"%s\"}}]\n" %
                      (self.port, data("ca.crt"), data(name + ".crt"), data(name + ".key")))

    def daemon(self, name, program, *arguments):
        self.daemons.append(Process(name, self.work, list(arguments), program=program).start())

    def start(self):
        os.mkdir(self.folder)
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                     "-days", "2", "-subj", "/CN=up-ca", "-keyout", self.path("ca.key"), "-out",
                     self.path("ca.crt"))
        self.openssl("genrsa", "-out", self.path("sa.key"), "2048")
        self.openssl("rsa", "-in", self.path("sa.key"), "-pubout", "-out", self.path("sa.pub"))
        self.certificate("serving", "/CN=kube-apiserver", "subjectAltName=IP:127.0.0.1,DNS:localhost")
        self.certificate("admin", "/O=system:masters/CN=admin")
        self.certificate("controllers", "/CN=system:kube-controller-manager")
        self.write_kubeconfig(self.kubeconfig, "admin")
        self.write_kubeconfig(self.path("controllers.conf"), "controllers")
        client, peer = free_port(), free_port()
        url = "http://127.0.0.1:%d"
        self.daemon("etcd", "etcd", "--data-dir", self.path("etcd"), "--unsafe-no-fsync",
                    "--listen-client-urls", url % client, "--advertise-client-urls", url % client,
                    "--listen-peer-urls", url % peer, "--initial-advertise-peer-urls", url % peer,
                    "--initial-cluster", "default=" + url % peer)
        self.daemon("apiserver", os.path.join(UPSTREAM, "kube-apiserver"),
                    "--etcd-servers=" + url % client, "--bind-address=127.0.0.1",
                    "--secure-port=%d" % self.port, "--cert-dir=" + self.path("apiserver"),
                    "--tls-cert-file=" + self.path("serving.crt"),
                    "--tls-private-key-file=" + self.path("serving.key"),
                    "--client-ca-file=" + self.path("ca.crt"),
                    "--kubelet-client-certificate=" + self.path("admin.crt"),
                    "--kubelet-client-key=" + self.path("admin.key"),
                    "--service-account-key-file=" + self.path("sa.pub"),
                    "--service-account-signing-key-file=" + self.path("sa.key"),
                    "--service-account-issuer=https://kubernetes.default.svc",
                    "--authorization-mode=Node,RBAC", "--service-cluster-ip-range=10.96.0.0/12")
        self.api = read_kubeconfig(self.kubeconfig)
        assert wait(self.ready, 90), "kube-apiserver is not ready:\n" + self.log()[-2000:]
        self.daemon("controllers", os.path.join(UPSTREAM, "kube-controller-manager"),
                    "--kubeconfig=" + self.path("controllers.conf"),
                    "--service-account-private-key-file=" + self.path("sa.key"),
                    "--root-ca-file=" + self.path("ca.crt"), "--use-service-account-credentials=true",
                    "--leader-elect=false", "--secure-port=%d" % free_port())
        self.volumes()
        subprocess.run([BIN, "host", "install"], check=True, capture_output=True,
                       env={**os.environ, "KUBECONFIG": self.kubeconfig, "HOME": self.work})
        wait(lambda: self.api.get("/apis/sublet.dev/v1alpha1/nodeusages")[0] == 200)
        self.daemon("node-usage", BIN, "node-usage", "--kubeconfig", self.kubeconfig)
        return self

    def volumes(self):
        """A default class and volumes for the claims of the tests: upstream has no provisioner."""
        self.api.post("/apis/storage.k8s.io/v1/storageclasses", {
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {
                "name": "local-path",
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "kubernetes.io/no-provisioner"})
        for i in range(80):
            self.api.post("/api/v1/persistentvolumes", {
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v%d" % i},
                "spec": {"storageClassName": "local-path", "capacity": {"storage": "1Gi"},
                         "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/nonexistent"}}})

    def log(self):
        return open(os.path.join(self.work, "apiserver.log"), errors="replace").read()

    def stop(self, *how):
        for process in self.nodes + list(reversed(self.daemons)):
            process.stop()
        return 0
