#!/usr/bin/env python3
"""Experiments E0 to E10 on a real GPU: the interceptor and gpud's engine beside the bare driver, beside
HAMi-core (--hami LIBVGPU) and beside MPS, in one run, since absolute figures differ from machine to
machine. One line of JSON for each experiment, then a table. Changes no setting of the GPU.

  device.py --build BUILD_DIR [--hami PATH] [--only E2,E4] [--quick] [--out FILE]
  device.py --build BUILD_DIR --simulated --quick     checks this program itself; its figures say nothing

Without a GPU it says "skipped: no GPU". BUILD_DIR holds gpu/gpu_lab, gpu/gpu_probe, gpu/device_probe and
gpu/lib (device.sh packs them with their C library for a machine that has no compiler).
"""
import argparse
import glob
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

MIB = 1 << 20
GIB = 1 << 30


def find_library(name):
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib/x86_64-linux-gnu", "/usr/local/nvidia/lib64"):
        if os.path.exists(f"{folder}/{name}"):
            return os.path.realpath(f"{folder}/{name}")
    return None


class Setup:
    def __init__(self, options):
        build = os.path.abspath(options.build)
        self.options = options
        self.folder = tempfile.mkdtemp(prefix="sublet-device-")
        self.lib = f"{build}/gpu/lib"
        self.programs = f"{build}/gpu"
        # A packed build brings its loader and C library, for a machine with older ones.
        loader = glob.glob(f"{build}/closure/ld-linux-x86-64.so.2")
        self.loader = [loader[0], "--library-path", f"{build}/closure:{os.environ.get('LD_LIBRARY_PATH', '')}"] if loader else []
        if options.simulated:
            self.cuda, self.nvml = f"{self.lib}/libcuda-simulator.so", f"{self.lib}/libnvidia-ml-simulator.so"
        else:
            self.cuda, self.nvml = find_library("libcuda.so.1"), find_library("libnvidia-ml.so.1")
        self.cap = 4 * GIB if options.simulated else 20 * GIB
        self.hold = 3 * GIB if options.simulated else 40 * GIB
        self.base = {"SUBLET_SIMULATOR": f"{self.folder}/simulator"} if options.simulated else {}
        self.steps = None  # steps of device_probe's kernel in a millisecond, alone

    def seconds(self, long):
        return max(2, long // 5) if self.options.quick else long

    def environment(self, how, slice_name=None, hami=None):
        env = dict(os.environ, **self.base)
        if self.steps:
            env["SUBLET_STEPS_PER_MS"] = str(self.steps)
        if how == "ours":
            env.update(LD_PRELOAD=f"{self.lib}/libsublet-cuda.so", SUBLET_REAL_LIBCUDA=self.cuda,
                       SUBLET_GPU_FOLDER=f"{self.folder}/lab/slices/{slice_name}")
        elif how == "hami":
            env.update(LD_PRELOAD=self.options.hami, CUDA_REDIRECT=self.options.hami, GPU_CORE_UTILIZATION_POLICY="force",
                       CUDA_DEVICE_MEMORY_LIMIT=f"{hami[0] // MIB}m", CUDA_DEVICE_SM_LIMIT=str(hami[1]),
                       CUDA_DEVICE_MEMORY_SHARED_CACHE=f"{self.folder}/hami-{slice_name}.cache", LIBCUDA_LOG_LEVEL="0")
        elif self.options.simulated:
            env["LD_PRELOAD"] = self.cuda
        return env

    def start(self, program, *arguments, **how):
        env = self.environment(how.pop("how", "native"), how.pop("slice_name", None), how.pop("hami", None))
        env.update(how.pop("env", {}))
        command = [str(a) for a in arguments]
        if program in ("gpu_probe", "device_probe"):
            command = self.loader + [f"{self.programs}/{program}"] + command
        else:
            command = [program] + command
        return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, program, *arguments, timeout=120, **how):
        """(exit code, standard output, standard error)"""
        process = self.start(program, *arguments, **how)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            return 124, out, err + "timed out"
        return process.returncode, out, err

    def probe(self, *arguments, **how):
        code, out, err = self.run("device_probe", *arguments, **how)
        if code != 0:
            raise RuntimeError(f"device_probe {arguments}: exit {code}: {err.strip()[-300:]}")
        return json.loads(out)


class Lab:
    """gpu_lab with slices; use as a context."""

    def __init__(self, setup, *slices):
        self.setup = setup
        shutil.rmtree(f"{setup.folder}/lab", ignore_errors=True)
        command = setup.loader + [f"{setup.programs}/gpu_lab", setup.nvml, f"{setup.folder}/lab", "0", *slices]
        self.log = open(f"{setup.folder}/lab.log", "w+")
        self.process = subprocess.Popen(command, env=dict(os.environ, **setup.base), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.log, text=True)
        if self.process.stdout.readline().strip() != "ready":
            raise RuntimeError("gpu_lab does not start: " + self.events())

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.process.stdin.close()
        self.process.wait(timeout=20)
        self.log.close()

    def device(self, name):
        self.process.stdin.write("status\n")
        self.process.stdin.flush()
        status = json.loads(self.process.stdout.readline())
        return next(s for s in status["slices"] if s["name"] == name)["devices"][0]

    def events(self):
        self.log.flush()
        with open(self.log.name) as text:
            return text.read()


def shares_of(outputs, weights, window):
    """The largest error in points over windows of `window` seconds, the first second left out."""
    counts = [json.loads(o)["per_second"][1:] for o in outputs]
    length = min(len(c) for c in counts)
    worst = 0.0
    total = sum(weights)
    for start in range(0, length - window + 1):
        got = [sum(c[start:start + window]) for c in counts]
        for g, w in zip(got, weights):
            worst = max(worst, abs(100.0 * g / max(sum(got), 1) - 100.0 * w / total))
    return round(worst, 2), round(sum(sum(c[:length]) for c in counts) / max(length, 1), 1)


def used_by_nvml(pids):
    """MiB that the driver shows for these processes; None where it cannot be asked."""
    if shutil.which("nvidia-smi") is None:
        return None
    text = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True).stdout
    return sum(int(line.split(",")[1]) for line in text.splitlines() if line.strip() and int(line.split(",")[0]) in pids)


def e0(s):
    native = s.probe("exports")
    with Lab(s, f"a:{s.cap}:1000"):
        code, out, err = s.run("gpu_probe", "procs", how="ours", slice_name="a")
    return native["unknown"] == 0 and code == 0, dict(native, procs=(out or err).strip().splitlines()[-1:])


def e1(s):
    count = 20000 if s.options.quick else 1000000
    result = {"native": [], "ours": [], "hami": []}
    order = ["native", "ours", "ours", "native", "native", "ours"]
    with Lab(s, f"a:{s.cap}:1000"):
        for how in order + (["hami", "hami"] if s.options.hami else []):
            result[how] += s.probe("launch", count, how=how, slice_name="a", hami=(s.cap, 100))["ns"]
        train = torch_step(s)
    middle = {how: round(statistics.median(ns), 1) for how, ns in result.items() if ns}
    added = round(middle["ours"] - middle["native"], 1)
    good = added <= 100 and (train is None or train["added_percent"] <= 0.5)
    return good, {"launch_ns": middle, "added_ns": added, "train": train}


TRAIN = """
import time, torch
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda().bfloat16()
opt = torch.optim.SGD(model.parameters(), lr=1e-4)
x = torch.randn(256, 2048, device='cuda', dtype=torch.bfloat16)
def step():
    opt.zero_grad(); model(x).square().mean().backward(); opt.step()
for _ in range(20): step()
torch.cuda.synchronize(); t = time.perf_counter()
for _ in range(300): step()
torch.cuda.synchronize(); print((time.perf_counter() - t) / 300 * 1e3)
"""


def torch_step(s):
    if s.options.simulated or s.run("python3", "-c", "import torch")[0] != 0:
        return None
    ms = {"native": [], "ours": []}
    for how in ("native", "ours", "ours", "native") * (1 if s.options.quick else 3):
        code, out, err = s.run("python3", "-c", TRAIN, how=how, slice_name="a")
        if code != 0:
            return {"error": err[-300:], "added_percent": 100}
        ms[how].append(float(out))
    native, ours = statistics.median(ms["native"]), statistics.median(ms["ours"])
    return {"native_ms": round(native, 3), "ours_ms": round(ours, 3), "added_percent": round(100 * (ours / native - 1), 2)}


def race(s, how, cap):
    racers = [s.start("gpu_probe", "race", s.seconds(20), i + 1, how=how, slice_name="a", hami=(cap, 100)) for i in range(8)]
    most = 0
    while any(r.poll() is None for r in racers):
        most = max(most, used_by_nvml({r.pid for r in racers}) or 0)
        time.sleep(0.05)
    codes = [r.wait() for r in racers]
    return {"driver_mib": most, "codes": sorted(set(codes))}


def e2(s):
    with Lab(s, f"a:{s.cap}:1000") as lab:
        ours = race(s, "ours", s.cap)
        peak = lab.device("a")["peakBytes"]
    result = {"cap_bytes": s.cap, "peak_bytes": peak, "over_bytes": max(0, peak - s.cap), "ours": ours}
    if s.options.hami:
        result["hami"] = race(s, "hami", s.cap)
    over_driver = max(0, ours["driver_mib"] - s.cap // MIB)
    return result["over_bytes"] == 0 and over_driver <= 64 and ours["codes"] == [0], dict(result, over_driver_mib=over_driver)


def e3(s):
    with Lab(s, f"a:{2 * GIB}:1000") as lab:
        plain = s.probe("exhaust", how="ours", slice_name="a")
        code, out, _ = s.run("gpu_probe", "matrix", how="ours", slice_name="a", timeout=240)
        time.sleep(0.5)
        left = lab.device("a")["usedBytes"]
    bad = [line for line in out.splitlines() if "BAD" in line]
    good = plain["answer"] == 2 and plain["allocated"] <= 2 * GIB and plain["total"] == 2 * GIB and left == 0 and code == 0
    return good, {"exhaust": plain, "calls_ok": out.count(" ok"), "calls_bad": bad, "matrix_exit": code, "left_bytes": left}


def busy(s, names, weights, how="ours", ms=1, seconds=None):
    seconds = seconds or s.seconds(20)
    total = sum(weights)
    running = [s.start("device_probe", "busy", seconds, ms, how=how, slice_name=name, hami=(s.cap // len(names), 100 * w // total))
               for name, w in zip(names, weights)]
    outputs = []
    for process in running:
        out, err = process.communicate(timeout=seconds + 60)
        if process.returncode != 0:
            raise RuntimeError(f"busy: exit {process.returncode}: {err.strip()[-300:]}")
        outputs.append(out)
    return outputs


def e4(s):
    solo = s.probe("busy", s.seconds(10), 1)
    s.steps = solo["steps_per_ms"]
    alone = statistics.median(solo["per_second"][1:] or [1])
    result, good = {"solo_per_second": alone}, True
    window = 2 if s.options.quick else 10
    for weights in ([25, 75], [20, 30, 50]):
        names = ["a", "b", "c"][:len(weights)]
        with Lab(s, *[f"{n}:{s.cap // len(weights)}:{10 * w}" for n, w in zip(names, weights)]):
            outputs = busy(s, names, weights)
        one, rate = shares_of(outputs, weights, 1)
        long, _ = shares_of(outputs, weights, window)
        row = {"error_1s": one, f"error_{window}s": long, "total_of_solo": round(rate / max(alone, 1), 3)}
        if s.options.hami:
            row["hami_error_1s"] = shares_of(busy(s, names, weights, how="hami"), weights, 1)[0]
        row["timeslicing_error_1s"] = shares_of(busy(s, names, weights, how="native"), weights, 1)[0]
        result["/".join(map(str, weights))] = row
        good = good and one <= 3 and long <= 1
    return good, result


def e5(s):
    length = s.seconds(15)
    with Lab(s, f"a:{s.cap // 2}:250", f"b:{s.cap // 2}:750"):
        first = s.start("device_probe", "busy", length, 1, how="ours", slice_name="a")
        time.sleep(length / 3)
        busy(s, ["b"], [75], seconds=length / 3)
        out, _ = first.communicate(timeout=60)
        solo = s.probe("busy", s.seconds(10), 1)
    counts = json.loads(out)["per_second"]
    third = max(1, len(counts) // 3)
    alone = statistics.median(solo["per_second"][1:] or [1])
    before = statistics.mean(counts[1:third] or counts[:1]) / alone
    after = statistics.mean(counts[-max(1, third - 1):]) / alone
    return before >= 0.97 and after >= 0.97, {"alone_of_solo": round(before, 3), "after_neighbour_of_solo": round(after, 3),
                                              "per_second": counts}


def e6(s):
    with Lab(s, f"a:{s.hold + 4 * GIB}:1000") as lab:
        holder = s.start("gpu_probe", "hold", s.hold, how="ours", slice_name="a")
        holder.stdout.readline()
        before = lab.device("a")["usedBytes"]
        holder.send_signal(signal.SIGKILL)
        start = time.perf_counter()
        while lab.device("a")["usedBytes"] > 0 and time.perf_counter() - start < 5:
            pass
        free_ms = (time.perf_counter() - start) * 1e3
        after = lab.device("a")["usedBytes"]
        holder.wait()
    return before >= s.hold and after == 0, {"held_bytes": before, "ms_until_lent_again": round(free_ms, 1)}


def e7(s):
    seconds = s.seconds(12)
    result = {"solo": s.probe("latency", seconds)}
    s.steps = s.steps or result["solo"]["steps_per_ms"]

    def beside(how, names, weights):
        hog = s.start("device_probe", "busy", seconds + 2, 20, how=how, slice_name=names[1])
        time.sleep(1)
        out = s.probe("latency", seconds, how=how, slice_name=names[0])
        rate = json.loads(hog.communicate(timeout=60)[0])["per_second"]
        return {"p50_ms": out["p50_ms"], "p99_ms": out["p99_ms"], "hog_per_second": statistics.median(rate[1:] or [0])}

    result["timeslicing"] = beside("native", ["a", "b"], None)
    for first, second in ((500, 500), (800, 200)):
        with Lab(s, f"a:{s.cap // 2}:{first}", f"b:{s.cap // 2}:{second}"):
            result[f"ours_{first // 10}/{second // 10}"] = beside("ours", ["a", "b"], None)
    return result["ours_80/20"]["p99_ms"] > 0, result


FRAMEWORKS = {
    "torch: OutOfMemoryError": """
import torch
try:
    keep = [torch.empty(1 << 28, dtype=torch.uint8, device='cuda') for _ in range(1000)]
except torch.OutOfMemoryError: print('ok', torch.cuda.mem_get_info()[1])""",
    "torch: expandable segments": """
import os; os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'expandable_segments:True'
import torch
try:
    keep = [torch.empty(1 << 28, dtype=torch.uint8, device='cuda') for _ in range(1000)]
except torch.OutOfMemoryError: print('ok')""",
    "torch: cudaMallocAsync": """
import os; os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'backend:cudaMallocAsync'
import torch
try:
    keep = [torch.empty(1 << 28, dtype=torch.uint8, device='cuda') for _ in range(1000)]
except torch.OutOfMemoryError: print('ok')""",
    "torch: CUDA graph": """
import torch
x = torch.randn(1024, 1024, device='cuda'); torch.mm(x, x); torch.cuda.synchronize()
g = torch.cuda.CUDAGraph()
with torch.cuda.graph(g): y = torch.mm(x, x)
for _ in range(100): g.replay()
torch.cuda.synchronize(); print('ok')""",
    "torch: DataLoader forks": """
import torch
from torch.utils.data import DataLoader
x = torch.randn(8, device='cuda')
print('ok' if sum(1 for _ in DataLoader(list(range(64)), num_workers=4)) == 64 else 'bad')""",
    "jax": "import jax.numpy as n; print('ok' if float((n.ones((512, 512)) @ n.ones((512, 512)))[0, 0]) == 512 else 'bad')",
    "cupy": "import cupy; print('ok' if int(cupy.arange(10).sum()) == 45 else 'bad')",
    "triton": """
import torch, triton, triton.language as tl
@triton.jit
def k(p): tl.store(p, 7)
x = torch.zeros(1, device='cuda'); k[(1,)](x); print('ok' if x.item() == 7 else 'bad')""",
}


def e8(s):
    if s.options.simulated:
        return None, {"why": "frameworks do not start on the simulator"}
    result = {}
    with Lab(s, f"a:{s.cap}:1000") as lab:
        for name, text in FRAMEWORKS.items():
            path = f"{s.folder}/framework.py"
            with open(path, "w") as file:
                file.write(text)
            code, out, err = s.run("python3", path, how="ours", slice_name="a", timeout=100)
            missing = "ModuleNotFoundError" in err
            result[name] = "not installed" if missing else out.strip() if code == 0 else err.strip()[-200:]
        result["peak_over_cap"] = max(0, lab.device("a")["peakBytes"] - s.cap)
    ran = [v for k, v in result.items() if k != "peak_over_cap" and v != "not installed"]
    return bool(ran) and all(v.startswith("ok") for v in ran) and result["peak_over_cap"] == 0, result


def e9(s):
    with Lab(s, f"a:{s.cap}:500") as lab:
        rogue = s.start("gpu_probe", "hold", GIB)
        rogue.stdout.readline()
        start = time.perf_counter()
        while "UnmanagedGpuProcess" not in lab.events() and time.perf_counter() - start < 10:
            time.sleep(0.02)
        seen = "UnmanagedGpuProcess" in lab.events()
        ms = (time.perf_counter() - start) * 1e3
        rogue.communicate()
    return seen, {"ms_until_reported": round(ms), "note": "ended only inside a slice's container, which there is none of here"}


def e10(s):
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None or s.options.simulated:
        return None, {"why": "no MPS here"}
    env = {"CUDA_MPS_PIPE_DIRECTORY": f"{s.folder}/mps", "CUDA_MPS_LOG_DIRECTORY": f"{s.folder}/mps"}
    os.makedirs(f"{s.folder}/mps", exist_ok=True)
    subprocess.run([control, "-d"], env=dict(os.environ, **env), check=True)
    try:
        outputs = []
        running = [s.start("device_probe", "busy", s.seconds(15), 1, env=dict(env, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=str(p))) for p in (25, 75)]
        for process in running:
            outputs.append(process.communicate(timeout=90)[0])
        return None, {"peer": "MPS 25/75 of the threads", "error_1s": shares_of(outputs, [25, 75], 1)[0]}
    finally:
        subprocess.run([control], input="quit\n", text=True, env=dict(os.environ, **env))


EXPERIMENTS = [
    ("E0", "exports and versions", "every answer known", e0), ("E1", "launch and training step", "<= 100 ns, <= 0.5 %", e1),
    ("E2", "8 racing processes at the cap", "0 bytes over", e2), ("E3", "allocation calls to exhaustion", "all answer 2, all back", e3),
    ("E4", "shares 25/75, 20/30/50", "<= 3 points/s, <= 1/10 s", e4), ("E5", "neighbour joins and leaves", ">= 97 % of solo", e5),
    ("E6", "SIGKILL of a large holder", "all bytes back", e6), ("E7", "latency beside a hog", "printed", e7),
    ("E8", "frameworks", "run, cap holds", e8), ("E9", "process past the interceptor", "reported", e9), ("E10", "MPS beside", "printed", e10),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--hami")
    parser.add_argument("--only", default="")
    parser.add_argument("--out")
    parser.add_argument("--simulated", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    setup = Setup(options)
    if setup.nvml is None or setup.cuda is None:
        print("skipped: no GPU\n0 passed, 0 failed, 1 skipped")
        return 0
    if options.simulated:
        print("SIMULATED: this checks the harness; no figure below says anything about a GPU")
        with Lab(setup, f"a:{GIB}:1000"):
            pass  # makes the simulated machine
    else:
        subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"])
    rows = []
    for key, what, wanted, run in EXPERIMENTS:
        if options.only and key not in options.only.split(","):
            continue
        start = time.time()
        try:
            good, result = run(setup)
        except Exception as error:  # an experiment that breaks must not take the others with it
            good, result = False, {"error": f"{type(error).__name__}: {error}"[:400]}
        if options.simulated and key in ("E1", "E4", "E5", "E7") and "error" not in result:
            good = None  # what it measured is the simulator and this machine's load
        verdict = "-" if good is None else "pass" if good else "FAIL"
        rows.append((key, what, wanted, verdict, result))
        line = json.dumps({"experiment": key, "what": what, "wanted": wanted, "verdict": verdict,
                           "seconds": round(time.time() - start, 1), "simulated": options.simulated, **result})
        print(line, flush=True)
        if options.out:
            with open(options.out, "a") as file:
                file.write(line + "\n")
    print()
    for key, what, wanted, verdict, result in rows:
        print(f"{key:4} {verdict:5} {what:32} {wanted:26} {json.dumps(result)[:110]}")
    shutil.rmtree(setup.folder, ignore_errors=True)
    passed, failed, skipped = (sum(r[3] == v for r in rows) for v in ("pass", "FAIL", "-"))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
