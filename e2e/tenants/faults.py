"""A proxy between a tenant's syncer and its host that misbehaves on purpose: answers 409, 429 and 500,
cuts connections before and after the request went through, and holds watch events back."""
import os
import random
import socket
import ssl
import subprocess
import threading
import time


class FaultyHost:
    def __init__(self, host, work, seed=1, name="faulty"):
        self.host, self.random = host, random.Random(seed)
        self.on = False
        self.count = {}
        self.closed = False
        self.cert = os.path.join(work, name + ".crt")
        key = os.path.join(work, name + ".key")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
                        "-keyout", key, "-out", self.cert], check=True, capture_output=True)
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(self.cert, key)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def rewrite(self, kubeconfig):
        """Lets `kubeconfig`, which leads to the host, lead here."""
        import base64
        import re
        text = open(kubeconfig).read()
        text = re.sub(r"server: '[^']*'", "server: 'https://127.0.0.1:%d'" % self.port, text)
        authority = base64.b64encode(open(self.cert, "rb").read()).decode()
        text = re.sub(r"certificate-authority-data: [^}]*", "certificate-authority-data: " + authority,
                      text)
        open(kubeconfig, "w").write(text)

    def close(self):
        self.closed = True
        self.listener.close()

    def dial(self):
        """To the host, without a certificate: requests bring the syncer's own token."""
        context = ssl.create_default_context(cadata=self.host.api.ca)
        context.check_hostname = False
        return context.wrap_socket(socket.create_connection(("127.0.0.1", self.host.port)))

    def accept(self):
        while not self.closed:
            try:
                raw, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(raw,), daemon=True).start()

    def note(self, what):
        self.count[what] = self.count.get(what, 0) + 1
        return what

    def fault(self, method, target):
        if not self.on:
            return ""
        roll = self.random.random()
        if "watch=" in target:
            return ""
        writes = method in ("POST", "PUT", "PATCH", "DELETE")
        for share, what in ((0.07, "429"), (0.14, "500"), (0.21, "cut before"), (0.28, "cut after"),
                            (0.33, "409" if writes else "500")):
            if roll < share:
                return self.note(what)
        return ""

    def serve(self, raw):
        upstream = None
        try:
            client = self.tls.wrap_socket(raw, server_side=True)
            reader = client.makefile("rb")
            while True:
                head = self.read_head(reader)
                if not head:
                    return
                method, target = head[0].split()[:2]
                length = next((int(h.split(":")[1]) for h in head
                               if h.lower().startswith("content-length:")), 0)
                body = reader.read(length)
                what = self.fault(method, target)
                if what == "cut before":
                    return
                if what in ("409", "429", "500"):
                    reason = {"409": "Conflict", "429": "TooManyRequests",
                              "500": "InternalError"}[what]
                    text = ('{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"%s",'
                            '"message":"injected","code":%s}' % (reason, what)).encode()
                    client.sendall(b"HTTP/1.1 %s X\r\nContent-Type: application/json\r\n"
                                   b"Content-Length: %d\r\n\r\n%s" % (what.encode(), len(text), text))
                    continue
                if upstream is None:
                    upstream = self.dial()
                upstream.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)
                if what == "cut after":
                    upstream.recv(1)
                    return
                if "watch=" in target or any(h.lower().startswith("upgrade:") for h in head):
                    return self.stream(client, upstream)
                self.relay(client, upstream, method)
        except OSError:
            pass
        finally:
            for sock in (upstream, raw):
                if sock is not None:
                    try:
                        sock.close()
                    except OSError:
                        pass

    @staticmethod
    def read_head(reader):
        lines = []
        while True:
            line = reader.readline()
            if not line:
                return None
            line = line.decode("latin-1").rstrip("\r\n")
            if not line:
                return lines
            lines.append(line)

    def relay(self, client, upstream, method):
        reader = upstream.makefile("rb")
        head = self.read_head(reader)
        if not head:
            raise OSError("upstream closed")
        client.sendall("\r\n".join(head).encode("latin-1") + b"\r\n\r\n")
        lower = [h.lower() for h in head]
        length = next((int(h.split(":")[1]) for h in lower if h.startswith("content-length:")), None)
        if length is not None:
            client.sendall(reader.read(length))
        elif any("chunked" in h for h in lower):
            while True:
                size = reader.readline()
                data = reader.read(int(size.split(b";")[0], 16) + 2)
                client.sendall(size + data)
                if size.strip() == b"0":
                    break

    def stream(self, client, upstream):
        while True:
            data = upstream.recv(65536)
            if not data:
                return
            # A watch opened before the faults began suffers from them too.
            if self.on and self.random.random() < 0.5:
                self.note("slow watch")
                time.sleep(self.random.random() * 0.3)
            if self.on and self.random.random() < 0.03:
                self.note("cut watch")
                return
            client.sendall(data)
