#!/usr/bin/env bash
# Prints docs/VALUES.md from the schema in config/tenant_config.cc.
set -euo pipefail
cd "$(dirname "$0")/.."
echo "# Keys of a values file"
echo
echo "For \`sublet create --values FILE\` and \`sublet serve --config FILE\`; made by docs/gen_values.sh."
echo "Unknown keys, wrong types and values out of range are refused with file and line."
echo
echo "| key | type | meaning |"
echo "| --- | --- | --- |"
sed -n '/^const std::vector<Key>& Schema/,/^}/p' config/tenant_config.cc | tr '\n' ' ' |
  sed -E 's/" +"//g' | grep -oE '\{"[A-Za-z.]+", +"[^"]*", +"[^"]*"' |
  sed -E 's/^\{"([^"]*)", +"([^"]*)", +"([^"]*)"$/\1\t\2\t\3/' |
  while IFS=$'\t' read -r key type meaning; do echo "| \`$key\` | ${type//|/\\|} | $meaning |"; done
