"""What the rows share: the report, and the two ways a row ends. On import it makes e2e/tenants
readable, whose plain.py starts the processes."""
import os
import sys

# After this folder: both have a rows_pods.py.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tenants"))
from plain import Report, wait  # noqa: E402

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
