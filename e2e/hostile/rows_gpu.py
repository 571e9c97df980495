"""Devices of one's own choosing. Rows with a device are in e2e/gpu/run.sh."""
from common import lands, refused, report
from plain import pod


def row33(a, b, host, place):
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


def row35(a, b, host, place):
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


def row36(a, b, host, place):
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
