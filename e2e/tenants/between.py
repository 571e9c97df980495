"""A proxy between a tenant's syncer and its host that speaks for another host: it changes what the
syncer sends (as an admission webhook of the host does) and what the host answers (as a host of another
minor version does). Watches are changed event by event."""
import json
import ssl

from faults import FaultyHost


class Between(FaultyHost):
    """change_request(method, path, object) and change_answer(path, object) edit JSON in place; either
    may be None. An answer may be a list: its items are edited one by one."""

    def __init__(self, host, work, name, change_request=None, change_answer=None):
        self.change_request, self.change_answer = change_request, change_answer
        super().__init__(host, work, name=name)

    def answered(self, path, parsed):
        if self.change_answer is None or not isinstance(parsed, dict):
            return parsed
        items = parsed.get("items")
        for item in items if isinstance(items, list) else [parsed]:
            self.change_answer(path, item)
        return parsed

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
                path = target.split("?")[0]
                length = next((int(h.split(":")[1]) for h in head
                               if h.lower().startswith("content-length:")), 0)
                body = reader.read(length)
                upgrade = any(h.lower().startswith("upgrade:") for h in head)
                if self.change_request is not None and body.startswith(b"{"):
                    parsed = json.loads(body)
                    self.change_request(method, path, parsed)
                    body = json.dumps(parsed).encode()
                head = [h for h in head if not h.lower().startswith(
                    ("content-length:", "accept-encoding:"))]
                if body or method in ("POST", "PUT", "PATCH"):
                    head.append("Content-Length: %d" % len(body))
                if upstream is None:
                    upstream = self.dial()
                    answers = upstream.makefile("rb")
                upstream.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)
                if upgrade:
                    return self.stream(client, upstream)
                if not self.answer(client, answers, path, "watch=" in target):
                    return
        except (OSError, ValueError, ssl.SSLError):
            pass
        finally:
            for sock in (upstream, raw):
                if sock is not None:
                    try:
                        sock.close()
                    except OSError:
                        pass

    def answer(self, client, answers, path, watch):
        """One answer on its way back; False when the connection ends with it."""
        head = self.read_head(answers)
        if not head:
            return False
        lower = [h.lower() for h in head]
        chunked = any(h.startswith("transfer-encoding:") and "chunked" in h for h in lower)
        length = next((int(h.split(":")[1]) for h in lower if h.startswith("content-length:")), None)
        kept = [h for h in head if not h.lower().startswith(("content-length:", "transfer-encoding:"))]
        start = "\r\n".join(kept).encode("latin-1")
        if watch and chunked:
            client.sendall(start + b"\r\nTransfer-Encoding: chunked\r\n\r\n")
            rest = b""
            for data in self.chunks(answers):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    self.answered(path, event.get("object"))
                    text = json.dumps(event).encode() + b"\n"
                    client.sendall(b"%x\r\n%s\r\n" % (len(text), text))
            client.sendall(b"0\r\n\r\n")
            return False
        body = b"".join(self.chunks(answers)) if chunked else answers.read(length or 0)
        if body.startswith(b"{"):
            body = json.dumps(self.answered(path, json.loads(body))).encode()
        client.sendall(start + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        return True

    @staticmethod
    def chunks(reader):
        while True:
            size = int(reader.readline().split(b";")[0], 16)
            data = reader.read(size)
            reader.readline()
            if size == 0:
                return
            yield data
