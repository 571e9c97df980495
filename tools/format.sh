#!/usr/bin/env bash
# Formats the C++ sources as .clang-format says.
#   tools/format.sh           writes what differs
#   tools/format.sh --check   names what differs and fails (part `format` of tools/test.sh --full)
# The generated schema is left as its generator writes it. Needs clang-format-14 (tools/bootstrap.sh --full).
set -euo pipefail
cd "$(dirname "$0")/.."
mode=-i
case ${1:-} in
  '') ;;
  --check) mode='--dry-run --Werror' ;;
  -h|--help) sed -n '2,5p' "$0" | cut -c3-; exit 0 ;;
  *) echo "format.sh: unknown argument $1; see tools/format.sh --help" >&2; exit 2 ;;
esac
git ls-files -z '*.cc' '*.h' | grep -zvx 'kube/schema/builtin_schema.cc' |
  xargs -0 -P"$(nproc)" -n 40 clang-format-14 --style=file $mode
