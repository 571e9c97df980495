#!/usr/bin/env python3
"""Distils Kubernetes' default RBAC objects into apiserver/auth/default_policy.inc.

usage: default_policy.py KUBERNETES_SOURCE > apiserver/auth/default_policy.inc
KUBERNETES_SOURCE is the unpacked Go module k8s.io/kubernetes; the objects are read from the
plugin/pkg/auth/authorizer/rbac/bootstrappolicy/testdata/*.yaml that its own tests keep true.
One object per line, as JSON: what all of them share (apiVersion, the bootstrapping label, the
autoupdate annotation) is left to default_policy.cc.
"""
import json
import pathlib
import sys

import yaml

FILES = ["cluster-roles", "controller-roles", "cluster-role-bindings", "controller-role-bindings",
         "namespace-roles", "namespace-role-bindings"]
SHARED_LABEL = "kubernetes.io/bootstrapping"


def distil(item):
    metadata = item["metadata"]
    out = {"kind": item["kind"], "name": metadata["name"]}
    if metadata.get("namespace"):
        out["namespace"] = metadata["namespace"]
    labels = {k: v for k, v in (metadata.get("labels") or {}).items() if k != SHARED_LABEL}
    if labels:
        out["labels"] = labels
    if item.get("aggregationRule"):
        out["aggregationRule"] = item["aggregationRule"]
    if item["kind"].endswith("Role"):
        out["rules"] = item.get("rules") or []
    else:
        out["role"] = item["roleRef"]["kind"] + "/" + item["roleRef"]["name"]
        subjects = []
        for subject in item.get("subjects") or []:
            if subject["kind"] == "ServiceAccount":
                subjects.append(f"ServiceAccount/{subject['namespace']}/{subject['name']}")
            else:
                subjects.append(f"{subject['kind']}/{subject['name']}")
        out["subjects"] = subjects
    return out


def main():
    root = pathlib.Path(sys.argv[1]) / "plugin/pkg/auth/authorizer/rbac/bootstrappolicy/testdata"
    print("// Made by tools/default_policy.py from Kubernetes' own list; do not edit.")
    for name in FILES:
        print(f'// {name}\nR"policy(')
        for item in yaml.safe_load((root / f"{name}.yaml").read_text())["items"]:
            print(json.dumps(distil(item), separators=(",", ":")))
        print(')policy"')


main()
