// What kubectl get shows: the columns of a Table per kind and the cells of one row.
// Threads: any. Source: k8s.io/kubernetes pkg/printers/internalversion.
#pragma once

#include <string_view>
#include <vector>

#include "base/clock.h"
#include "kube/json.h"
#include "kube/kinds/kind.h"

namespace sublet::kube {

// columns: "Name/string/name;Age/string;IP/string//1": name, type, format, priority.
struct TableSpec {
  std::string_view group;
  std::string_view resource;
  std::string_view columns;
  // The cells in the order of the columns, priority 1 included.
  Json (*cells)(const Json& object, WallTime now);
};

// nullptr: the kind has the default columns, Name and Created At.
const TableSpec* FindTableSpec(std::string_view group, std::string_view resource);
std::vector<Column> ParseColumns(std::string_view text);

// The TableRow conditions of a finished pod, null for any other.
Json PodRowConditions(const Json& pod);

}  // namespace sublet::kube
