#include "apiserver/handlers/negotiate.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "apiserver/text.h"

namespace sublet::apiserver {
namespace {

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) {
    text.remove_prefix(1);
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) {
    text.remove_suffix(1);
  }
  return text;
}

// Splits at `separator`, calling `each` with trimmed non-empty parts.
template <typename Each>
void ForEachPart(std::string_view text, char separator, Each each) {
  while (!text.empty()) {
    const auto end = text.find(separator);
    const auto part = Trim(text.substr(0, end));
    if (!part.empty()) {
      each(part);
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
}

AcceptClause ParseClause(std::string_view text) {
  AcceptClause clause;
  bool first = true;
  ForEachPart(text, ';', [&](std::string_view part) {
    if (first) {
      first = false;
      const auto slash = part.find('/');
      clause.type = Lower(part.substr(0, slash));
      clause.subtype = slash == std::string_view::npos ? "*" : Lower(part.substr(slash + 1));
      return;
    }
    const auto equals = part.find('=');
    const auto key = Lower(Trim(part.substr(0, equals)));
    auto value = equals == std::string_view::npos ? "" : Trim(part.substr(equals + 1));
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"') {
      value = value.substr(1, value.size() - 2);
    }
    if (key == "q") {
      std::from_chars(value.data(), value.data() + value.size(), clause.q);
    } else {
      clause.parameters.emplace_back(key, std::string(value));
    }
  });
  return clause;
}

constexpr std::size_t kClausesMax = 32;

bool TakeClause(const AcceptClause& clause, MediaType media, bool allows_table, OutputForm& form) {
  OutputForm result;
  result.media = media;
  std::string as;
  std::string group;
  std::string version;
  for (const auto& [key, value] : clause.parameters) {
    if (key == "as") {
      as = value;
    } else if (key == "g") {
      group = value;
    } else if (key == "v") {
      version = value;
    } else if (key == "stream") {
      if (!value.empty() && value != "watch") {
        return false;
      }
      result.stream_watch = value == "watch";
    } else if (key == "pretty") {
      result.pretty = value == "1";
    }
  }
  if (!as.empty() || !group.empty() || !version.empty()) {
    if (group != "meta.k8s.io" || (version != "v1" && version != "v1beta1")) {
      return false;
    }
    result.meta_version = version;
    if (as == "Table") {
      if (!allows_table) {
        return false;
      }
      result.as = OutputForm::As::kTable;
    } else if (as == "PartialObjectMetadata" || as == "PartialObjectMetadataList") {
      result.as = OutputForm::As::kPartial;
    } else {
      return false;
    }
  }
  form = std::move(result);
  return true;
}

// Differs: answers are never protobuf (every client that asks for it also accepts JSON); a client
// that accepts protobuf alone is refused with the list below.
constexpr std::string_view kMediaTypes =
    "application/json, application/yaml, application/vnd.kubernetes.protobuf";

constexpr std::string_view kCustomMediaTypes = "application/json, application/yaml";

bool NegotiateClauses(std::string_view header, bool allows_table, OutputForm& form) {
  if (Trim(header).empty()) {
    return true;
  }
  for (const auto& clause : ParseAccept(header)) {
    if (clause.IsJson() && TakeClause(clause, MediaType::kJson, allows_table, form)) {
      return true;
    }
    if (clause.type == "application" && clause.subtype == "yaml" &&
        TakeClause(clause, MediaType::kYaml, allows_table, form)) {
      return true;
    }
  }
  return false;
}

bool WantsPretty(const Request& request) {
  const auto pretty = request.query.Get("pretty");
  if (!pretty.empty()) {
    return pretty == "1" || pretty == "t" || pretty == "T" || pretty == "true" ||
           pretty == "TRUE" || pretty == "True";
  }
  const auto agent = request.Header("user-agent");
  return agent.starts_with("curl") || agent.starts_with("Wget") || agent.starts_with("Mozilla/5.0");
}

}  // namespace

std::string_view AcceptClause::Parameter(std::string_view name) const {
  for (const auto& [key, value] : parameters) {
    if (key == name) {
      return value;
    }
  }
  return {};
}

std::vector<AcceptClause> ParseAccept(std::string_view header) {
  std::vector<AcceptClause> clauses;
  ForEachPart(header, ',', [&](std::string_view part) {
    if (clauses.size() < kClausesMax) {
      clauses.push_back(ParseClause(part));
    }
  });
  // By quality, then the more specific first, as the client wrote them otherwise.
  std::stable_sort(clauses.begin(), clauses.end(),
                   [](const AcceptClause& a, const AcceptClause& b) {
                     if (a.q != b.q) {
                       return a.q > b.q;
                     }
                     if ((a.type == "*") != (b.type == "*")) {
                       return b.type == "*";
                     }
                     return a.subtype != "*" && b.subtype == "*" && a.type == b.type;
                   });
  return clauses;
}

namespace {

// A client that names no type of ours at all is refused by the route, in its own words.
bool NamesKnownType(std::string_view header) {
  for (const auto& clause : ParseAccept(header)) {
    const bool known = clause.type == "application" &&
                       (clause.subtype == "yaml" || clause.subtype == "vnd.kubernetes.protobuf");
    if (clause.IsJson() || known) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string OutputForm::ContentType() const {
  return media == MediaType::kYaml ? "application/yaml" : "application/json";
}

std::string MediaTypeOf(std::string_view header) {
  return Lower(Trim(header.substr(0, header.find(';'))));
}

Result<OutputForm> NegotiateOutput(const Request& request, const OutputRules& rules) {
  OutputForm form;
  const auto accept = request.Header("accept");
  if (!NegotiateClauses(accept, rules.allows_table, form)) {
    if (!rules.is_custom && !NamesKnownType(accept)) {
      std::string text =
          "406: Not Acceptable\n\nAvailable representations: " + std::string(kMediaTypes);
      if (rules.is_collection) {
        text += ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
      }
      return Status(Reason::kNotAcceptable, std::move(text)).With({});
    }
    return Status(Reason::kNotAcceptable,
                  "only the following media types are accepted: " +
                      std::string(rules.is_custom ? kCustomMediaTypes : kMediaTypes));
  }
  form.pretty = form.pretty || WantsPretty(request);
  if (form.as == OutputForm::As::kTable) {
    const auto include = request.query.Get("includeObject");
    if (include == "None") {
      form.include = OutputForm::Include::kNone;
    } else if (include == "Object") {
      form.include = OutputForm::Include::kObject;
    } else if (!include.empty() && include != "Metadata") {
      return BadRequest(
          "Unable to convert to Table as requested: includeObject: Invalid value: \"" +
          std::string(include) + "\": must be 'Metadata', 'Object', 'None', or empty");
    }
  }
  return form;
}

Result<MediaType> NegotiateInput(const Request& request, bool allows_protobuf) {
  const std::string type = MediaTypeOf(request.Header("content-type"));
  if (type.empty() || type == "application/json") {
    return MediaType::kJson;
  }
  if (type == "application/yaml") {
    return MediaType::kYaml;
  }
  if (type == "application/vnd.kubernetes.protobuf" && allows_protobuf) {
    return MediaType::kProtobuf;
  }
  return Status(
      Reason::kUnsupportedMediaType,
      "the body of the request was in an unknown format - accepted media types include: " +
          std::string(allows_protobuf ? kMediaTypes : kCustomMediaTypes));
}

}  // namespace sublet::apiserver
