// Content negotiation: what form the answer takes (Accept) and what the body is (Content-Type).
// Source: k8s.io/apiserver endpoints/handlers/negotiation.
// Threads: any; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apiserver/request.h"
#include "base/result.h"

namespace sublet::apiserver {

enum class MediaType : std::uint8_t { kJson, kYaml, kProtobuf };

struct OutputForm {
  enum class As : std::uint8_t { kObject, kTable, kPartial };
  enum class Include : std::uint8_t { kMetadata, kNone, kObject };
  MediaType media = MediaType::kJson;  // kJson or kYaml
  As as = As::kObject;
  std::string meta_version = "v1";  // of meta.k8s.io for tables and partial objects
  Include include = Include::kMetadata;
  bool pretty = false;
  bool stream_watch = false;  // the client wrote ;stream=watch

  // True when published bytes can be sent as they stand.
  bool IsPlainJson() const { return media == MediaType::kJson && as == As::kObject && !pretty; }
  std::string ContentType() const;
};

struct OutputRules {
  bool allows_table = true;  // false for kinds that have no rows (reviews)
  bool is_custom = false;
  bool is_collection = false;  // list and watch
};
// Errors: NotAcceptable, BadRequest (includeObject).
Result<OutputForm> NegotiateOutput(const Request& request, const OutputRules& rules);

// The body's type. `allows_protobuf` is false for custom resources.
// Errors: UnsupportedMediaType, naming what is accepted.
Result<MediaType> NegotiateInput(const Request& request, bool allows_protobuf);

// One clause of an Accept header: "application/json;as=Table;q=0.8".
struct AcceptClause {
  std::string type;
  std::string subtype;
  std::vector<std::pair<std::string, std::string>> parameters;  // without q
  double q = 1;
  // "" when absent.
  std::string_view Parameter(std::string_view name) const;
  bool IsJson() const {
    return (type == "application" && (subtype == "json" || subtype == "*")) ||
           (type == "*" && subtype == "*");
  }
};
// Best first; at most 32 clauses are looked at.
std::vector<AcceptClause> ParseAccept(std::string_view header);

// "application/json" of "application/json; charset=utf-8", lower case.
std::string MediaTypeOf(std::string_view header);

}  // namespace sublet::apiserver
