// JsonPath: the part of kubectl's JSONPath that printer columns, selectable fields and scale paths
// use: .a.b, .a\.b, ['a'], [0], [-1], [*], .*, [?(@.type=="Ready")] with ==, !=, <, <=, >, >=.
// Threads: immutable after Parse; Find from any thread.
// Source: k8s.io/client-go util/jsonpath.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kube/json.h"

namespace sublet::apiserver {

class JsonPath {
 public:
  // `text` with its leading dot, without braces. Errors: BadRequest. Bytes from outside: see
  // handlers/request_fuzz.cc.
  static Result<JsonPath> Parse(std::string_view text);

  // The values it finds, in order; valid while `value` lives.
  std::vector<const kube::Json*> Find(const kube::Json& value) const;
  // True when it is a chain of names only: what scale and selectable fields demand.
  bool IsPlain() const;
  // The names of a plain path.
  std::vector<std::string> Names() const;

 private:
  enum class Kind : std::uint8_t { kName, kIndex, kAll, kFilter };
  struct Step {
    Kind kind = Kind::kName;
    std::string name;
    std::int64_t index = 0;
    // kFilter: @.<left> <op> <literal>; op "" = exists.
    std::vector<std::string> left;
    std::string op;
    std::shared_ptr<const kube::Json> literal;
  };
  class Parser;
  static bool Passes(const Step& step, const kube::Json& item);

  std::vector<Step> steps_;
};

}  // namespace sublet::apiserver
