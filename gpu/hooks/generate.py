#!/usr/bin/env python3
"""Regenerates the symbol tables of gpu/hooks from NVIDIA's published packages.

    gpu/hooks/generate.py [--packages DIR]

Reads the headers of nvidia-cuda-runtime (13) and nvidia-cuda-runtime-cu12 and the function names of
nvidia-ml-py (all from PyPI; with --packages the folder that holds the .whl files, otherwise they are
downloaded with pip). Only names, ABI versions and struct sizes leave the packages:
  cuda_symbols.inc  SUBLET_SYMBOL(name)                       every export of libcuda.so.1
  cuda_procs.inc    SUBLET_PROC(name, version, ptsz, export)  what cuGetProcAddress answers
  cuda_sizes.inc    SUBLET_SIZE(type, bytes), SUBLET_OFFSET(type, member, bytes)
  cudart_needs.inc  SUBLET_SYMBOL(name)                       what libcudart asks the driver for
  nvml_symbols.inc  SUBLET_SYMBOL(name)                       exports of libnvidia-ml.so.1
Run it again for every CUDA release and review the difference; the tables only ever grow.
"""
import argparse, collections, glob, os, re, subprocess, sys, tempfile, zipfile

PACKAGES = ["nvidia-cuda-runtime==13.0.96", "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12",
            "nvidia-ml-py"]
# Types our code declares for itself (cuda_abi.h), and the members it touches.
TYPES = {
    "CUuuid": ["bytes"],
    "CUmemLocation": ["type", "id"],
    "CUmemAllocationProp": ["type", "requestedHandleTypes", "location"],
    "CUmemPoolProps": ["allocType", "handleTypes", "location", "maxSize"],
    "CUDA_ARRAY_DESCRIPTOR": ["Width", "Height", "Format", "NumChannels"],
    "CUDA_ARRAY3D_DESCRIPTOR": ["Width", "Height", "Depth", "Format", "NumChannels", "Flags"],
    "CUDA_ARRAY_MEMORY_REQUIREMENTS": ["size", "alignment"],
    "CUDA_MEM_ALLOC_NODE_PARAMS": ["poolProps", "bytesize", "dptr"],
    "CUDA_MEM_ALLOC_NODE_PARAMS_v2": ["poolProps", "bytesize", "dptr"],
    "CUgraphNodeParams": ["type", "alloc", "kernel"],
    "CUlaunchConfig": ["gridDimX", "blockDimX", "sharedMemBytes", "hStream", "attrs", "numAttrs"],
    "CUDA_LAUNCH_PARAMS": ["function", "hStream", "kernelParams"],
    "CUDA_MEMCPY2D": ["WidthInBytes", "Height"],
    "CUDA_MEMCPY3D": ["WidthInBytes", "Height", "Depth"],
    "CUmulticastObjectProp": ["numDevices", "size", "handleTypes"],
    "CUDA_GRAPH_INSTANTIATE_PARAMS": ["flags", "hUploadStream"],
}

def headers(root, pattern):
    return sorted(glob.glob(os.path.join(root, "**", pattern), recursive=True))

def strip_comments(text):
    return re.sub(r"//[^\n]*", " ", re.sub(r"/\*.*?\*/", " ", text, flags=re.S))

def exports_of(root):
    names = set()
    for path in headers(root, "cuda.h") + headers(root, "cudaGL.h") + headers(root, "cudaEGL.h") + \
            headers(root, "cudaVDPAU.h"):
        raw = open(path, encoding="utf-8", errors="replace").read()
        text = strip_comments(raw)
        # A declaration under a macro that renames it (cuMemAlloc -> cuMemAlloc_v2) gives both names.
        for name, ptsz in re.findall(r"#\s*define\s+(cu[A-Z]\w*)\s+(cu[A-Z]\w*)\s*$", text, re.M):
            names.update((name, ptsz))
        for kind, name in re.findall(r"__CUDA_API_(PTSZ|PTDS)\((cu[A-Z]\w*)\)", text):
            names.add(name)
            names.add(name + "_" + kind.lower())
        names.update(re.findall(r"CUDAAPI\s+(cu[A-Z]\w*)\s*\(", text))
    return names | {"cuProfilerInitialize", "cuProfilerStart", "cuProfilerStop"}

def procs_of(root):
    found = set()
    for path in headers(root, "cuda*Typedefs.h"):
        text = strip_comments(open(path, encoding="utf-8", errors="replace").read())
        for name, version, kind in re.findall(r"\*PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)", text):
            found.add((name, int(version), kind))
    return found

def cudart_needs(root):
    """The driver names inside libcudart: what it passes to cuGetProcAddress."""
    needs = set()
    for path in headers(root, "libcudart.so.*"):
        for text in re.findall(rb"\x00(cu[A-Z][A-Za-z0-9_]{2,})(?=\x00)", open(path, "rb").read()):
            needs.add(text.decode())
    return needs

def suffix_order(base, name):
    rest = re.sub(r"_pt[sd][sz]$", "", name)[len(base):]
    return 1 if rest == "" else int(rest[2:])

def match(procs, names):
    """Pairs the n-th ABI version of a name with its n-th export."""
    rows, odd = [], []
    by_base = collections.defaultdict(list)
    for name, version, kind in procs:
        by_base[(name, bool(kind))].append((version, kind))
    for (base, ptsz), versions in sorted(by_base.items()):
        pattern = re.compile(re.escape(base) + r"(_v\d+)?" + (r"_pt(sz|ds)$" if ptsz else r"$"))
        exports = sorted((n for n in names if pattern.match(n)), key=lambda n: suffix_order(base, n))
        versions = sorted(v for v, _ in versions)
        if len(exports) != len(versions):
            odd.append((base, ptsz, versions, exports))
            # The newest version belongs to the newest export; older ones as far as they go.
            exports = exports[-len(versions):]
            versions = versions[-len(exports):] if exports else []
        rows += [(base, v, int(ptsz), e) for v, e in zip(versions, exports)]
    return rows, odd

def sizes_of(include):
    lines = ["#include <cstdio>", "#include <cstddef>", "#include <cuda.h>", "int main() {"]
    for name, members in TYPES.items():
        lines.append('  std::printf("SUBLET_SIZE(%s, %%zu)\\n", sizeof(%s));' % (name, name))
        for member in members:
            lines.append('  std::printf("SUBLET_OFFSET(%s, %s, %%zu)\\n", offsetof(%s, %s));' %
                         (name, member, name, member))
    lines.append("}")
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "sizes.cc")
        open(source, "w").write("\n".join(lines))
        subprocess.run(["g++", "-I", include, source, "-o", source + ".out"], check=True)
        return subprocess.run([source + ".out"], check=True, capture_output=True, text=True).stdout

def write(name, comment, body):
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    with open(path, "w") as out:
        out.write("// Generated by gpu/hooks/generate.py; do not edit. %s\n%s" % (comment, body))

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--packages")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheels = arguments.packages or folder
        if not arguments.packages:
            for package in PACKAGES:
                subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", folder,
                                package], check=True)
        roots = []
        for wheel in sorted(glob.glob(os.path.join(wheels, "*.whl"))):
            root = os.path.join(folder, "x", os.path.basename(wheel))
            zipfile.ZipFile(wheel).extractall(root)
            roots.append(root)
        names, procs, needs = set(), set(), set()
        for root in roots:
            names |= exports_of(root)
            procs |= procs_of(root)
            needs |= cudart_needs(root)
        names |= {n for n in needs if n not in {p[0] for p in procs}}
        known = {name for name, _, _ in procs}
        names = {n for n in names if re.match(r"cu[A-Z]", n)}
        rows, odd = match(procs, names)
        for base, ptsz, versions, exports in odd:
            print("uneven:", base, "ptsz" if ptsz else "", versions, exports, file=sys.stderr)
        sizes = ""
        for root in [r for r in roots if "cuda_runtime" in r]:
            include = os.path.dirname(headers(root, "cuda.h")[0])
            try:
                sizes_here = sizes_of(include)
            except subprocess.CalledProcessError:
                print("sizes: not every type exists in", root, file=sys.stderr)
                continue
            if sizes and sizes != sizes_here:
                import difflib
                print("sizes differ:", [l for l in difflib.ndiff(sizes.splitlines(), sizes_here.splitlines()) if l[0] in "+-"], file=sys.stderr)
            sizes = sizes or sizes_here
        pynvml = [p for r in roots for p in headers(r, "pynvml.py")]
        nvml = set()
        for path in pynvml:
            nvml |= set(re.findall(r'_nvmlGetFunctionPointer\("(nvml\w+)"\)', open(path).read()))
        nvml |= {"nvmlInit_v2", "nvmlInitWithFlags"}
        # The Python module calls the newest form only; the library keeps the older ones.
        for name in list(nvml):
            found = re.fullmatch(r"(\w+)_v(\d+)", name)
            if found:
                nvml |= {found[1]} | {"%s_v%d" % (found[1], v) for v in range(2, int(found[2]))}
    write("cuda_symbols.inc", "Exports of libcuda.so.1 (CUDA 12.9, 13.0, 13.5).",
          "".join("SUBLET_SYMBOL(%s)\n" % n for n in sorted(names)))
    write("cuda_procs.inc", "What cuGetProcAddress answers for (name, ABI version, per-thread stream).",
          "".join("SUBLET_PROC(%s, %d, %d, %s)\n" % row for row in sorted(rows)))
    write("cudart_needs.inc", "Driver names inside libcudart.so.12 and .so.13.",
          "".join("SUBLET_SYMBOL(%s)\n" % n for n in sorted(needs)))
    write("cuda_sizes.inc", "Sizes and offsets of the driver's structs on x86-64.", sizes)
    write("nvml_symbols.inc", "Exports of libnvidia-ml.so.1.",
          "".join("SUBLET_SYMBOL(%s)\n" % n for n in sorted(nvml)))
    print(len(names), "exports,", len(rows), "entry points,", len(nvml), "NVML names;",
          len(known - {r[0] for r in rows}), "names without an export")

if __name__ == "__main__":
    main()
