#include "apiserver/handlers/body.h"

#include <nlohmann/json.hpp>

#include "apiserver/handlers/field_order.h"
#include "apiserver/text.h"
#include "kube/field_error.h"
#include "kube/protobuf.h"
#include "kube/typed.h"
#include "kube/yaml_strict.h"

namespace sublet::apiserver {
namespace {

// "<Kind> in version "<v>" cannot be handled as a <Expected>: <why>".
Status CannotHandle(const kube::GroupVersionKind& actual, std::string_view expected,
                    std::string_view why) {
  return BadRequest(actual.kind + " in version " + Quoted(actual.version) +
                    " cannot be handled as a " + std::string(expected) + ": " + std::string(why));
}

// The start of a body, as Kubernetes shows what it cannot recognise.
std::string Summary(std::string_view body) {
  constexpr std::size_t kBytesMax = 30;
  if (body.empty()) {
    return "<empty>";
  }
  const std::string_view start = body.substr(0, kBytesMax);
  std::string shown;
  if (body.front() == '{') {
    shown = start;
  } else {
    constexpr char kHex[] = "0123456789abcdef";
    for (const char c : start) {
      shown += kHex[static_cast<unsigned char>(c) >> 4];
      shown += kHex[static_cast<unsigned char>(c) & 15];
    }
  }
  if (body.size() > kBytesMax) {
    shown.append(" ...");
  }
  return shown;
}

// A body whose type could not even be read.
Status Unrecognized(const Call& call, const kube::Kind* expected, std::string_view why) {
  if (expected == nullptr) {
    return BadRequest("couldn't get version/kind; json parse error: " + std::string(why));
  }
  return BadRequest("the object provided is unrecognized (must be of type " + expected->gvk.kind +
                    "): couldn't get version/kind; json parse error: " + std::string(why) + " (" +
                    Summary(call.request->body) + ")");
}

// The package that Go prints for a kind's internal type: "core.ConfigMap", "rbac.Role".
std::string InternalPackage(const kube::GroupVersionKind& kind) {
  if (kind.group.empty() || kind.group == "events.k8s.io") {
    return "core";
  }
  return kind.group.substr(0, kind.group.find('.'));
}

// Fills apiVersion and kind that the body left out, and refuses others.
Result<void> CheckType(const Call& call, const BodyTarget& target, kube::Json& tree) {
  const kube::GroupVersionKind& expected = target.kind->gvk;
  const auto read = [&](const char* name) -> Result<std::string> {
    const auto it = tree.find(name);
    if (it == tree.end() || it->is_null()) {
      return std::string();
    }
    if (!it->is_string()) {
      return BadRequest(
          std::string("couldn't get version/kind; json parse error: json: cannot unmarshal ") +
          (it->is_number()    ? "number"
           : it->is_boolean() ? "bool"
           : it->is_array()   ? "array"
                              : "object") +
          " into Go struct field ." + name + " of type string");
    }
    return it->get<std::string>();
  };
  SUBLET_TRY(std::string api_version, read("apiVersion"));
  SUBLET_TRY(std::string kind, read("kind"));
  const auto& body = call.request->body;
  if (target.needs_type && kind.empty()) {
    return BadRequest("the object provided is unrecognized (must be of type " + expected.kind +
                      "): Object 'Kind' is missing in '" + body + "' (" + Summary(body) + ")");
  }
  kube::GroupVersionKind actual = expected;
  if (!api_version.empty()) {
    const auto group_version = kube::GroupVersion::Parse(api_version);
    actual.group = group_version.group;
    actual.version = group_version.version;
  }
  if (!kind.empty()) {
    actual.kind = kind;
  }
  const bool same_kind = actual.kind == expected.kind;
  if (actual != expected) {
    const Resource* other = call.catalog->FindKind(actual.group, actual.version, actual.kind);
    const bool known = other != nullptr;
    if (target.needs_type && !same_kind && actual.ApiVersion() == expected.ApiVersion()) {
      return Invalid(
          actual.group, actual.kind, kube::FindString(tree, {"metadata", "name"}),
          {{"FieldValueInvalid",
            "Invalid value: " + kube::GoQuote(actual.kind) + ": must be " + expected.kind,
            "kind"}});
    }
    if (known && !same_kind) {
      // It is read as what it says it is first.
      kube::Json copy = tree;
      if (auto read_as = kube::NormalizeTyped(other->kind->type, &copy); !read_as.ok()) {
        return CannotHandle(actual, expected.kind, read_as.error().message());
      }
      return CannotHandle(actual, expected.kind,
                          "converting (" + actual.version + "." + actual.kind + ") to (" +
                              InternalPackage(expected) + "." + expected.kind +
                              "): unknown conversion");
    }
    if (known || target.needs_type) {
      return BadRequest("the API version in the data (" + actual.ApiVersion() +
                        ") does not match the expected API version (" + expected.ApiVersion() +
                        ")");
    }
    return CannotHandle(actual, expected.kind,
                        "no kind " + Quoted(actual.kind) + " is registered for version " +
                            Quoted(actual.ApiVersion()) +
                            " in scheme \"pkg/api/legacyscheme/scheme.go:30\"");
  }
  tree["apiVersion"] = expected.ApiVersion();
  tree["kind"] = expected.kind;
  return Ok();
}

}  // namespace

Result<RawBody> ParseBody(const Call& call, bool find_duplicates, const kube::Kind* expected) {
  const bool allows_protobuf = call.resource == nullptr || !call.kind().is_custom;
  SUBLET_TRY(const MediaType media, NegotiateInput(*call.request, allows_protobuf));
  const std::string& body = call.request->body;
  RawBody raw;
  switch (media) {
    case MediaType::kProtobuf: {
      SUBLET_TRY(raw.tree, kube::DecodeProtobuf(body));
      break;
    }
    case MediaType::kYaml: {
      std::vector<std::string> twice;
      auto tree = find_duplicates ? kube::ParseYamlStrict(body, {}, &twice) : kube::ParseYaml(body);
      if (!tree.ok()) {
        return Unrecognized(call, expected, tree.error().message());
      }
      if (!twice.empty()) {
        raw.duplicate_fields.push_back("yaml: unmarshal errors:\n  " + kube::Join(twice, "\n  "));
      }
      raw.tree = std::move(*tree);
      break;
    }
    case MediaType::kJson: {
      auto tree = find_duplicates ? kube::ParseJsonStrict(body, {}, &raw.duplicate_fields)
                                  : kube::ParseJson(body);
      if (!tree.ok()) {
        if (!tree.error().Is(Reason::kBadRequest)) {
          return std::move(tree).error();
        }
        return Unrecognized(call, expected, tree.error().message());
      }
      for (std::string& field : raw.duplicate_fields) {
        field = "duplicate field " + Quoted(field);
      }
      raw.tree = std::move(*tree);
      break;
    }
  }
  if (!raw.tree.is_object()) {
    return Unrecognized(
        call, expected,
        "json: cannot unmarshal " +
            std::string(raw.tree.is_array()    ? "array"
                        : raw.tree.is_string() ? "string"
                        : raw.tree.is_number() ? "number"
                                               : "bool") +
            " into Go value of type struct { APIVersion string \"json:\\\"apiVersion,"
            "omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }");
  }
  return raw;
}

namespace {

// A strategic patch is put into an object by Kubernetes' converter, whose words differ from those of
// its JSON decoder: "json: cannot unmarshal string into Go struct field X.y of type int32".
std::string ConverterText(const std::string& text) {
  constexpr std::string_view kStart = "json: cannot unmarshal ";
  constexpr std::string_view kType = " of type ";
  const std::size_t at = text.rfind(kType);
  if (!text.starts_with(kStart) || at == std::string::npos) {
    return text;
  }
  const std::string sent =
      text.substr(kStart.size(), text.find(' ', kStart.size()) - kStart.size());
  const std::string type = text.substr(at + kType.size());
  const std::string value = sent == "number"   ? "int64"
                            : sent == "object" ? "map[string]interface {}"
                            : sent == "array"  ? "[]interface {}"
                                               : sent;
  if (type.starts_with("[]")) {
    return "cannot restore slice from " + value;
  }
  if (type.starts_with("map[")) {
    return "cannot restore map from " + value;
  }
  if (sent == "number" && type == "string") {
    return "cannot convert int64 to string";
  }
  if (type.find('.') == std::string::npos) {
    return "unrecognized type: " + type;
  }
  return "cannot restore struct from: " + value;
}

}  // namespace

Result<void> DecodeTree(Call& call, const kube::Kind& kind, FieldValidation validation,
                        std::vector<std::string> duplicates, kube::Json& tree, bool is_patch,
                        const std::function<std::string()>& patched_text) {
  std::vector<std::string> problems;
  std::string before;  // the tree before it is normalised, where that may have to be shown
  const auto refuse = [&](std::string_view why) -> Status {
    if (!is_patch) {
      return CannotHandle(kind.gvk, kind.gvk.kind, why);
    }
    return Invalid("", "", "",
                   {{"FieldValueInvalid",
                     "Invalid value: " + kube::GoQuote(patched_text ? patched_text() : before) +
                         ": " + std::string(why),
                     "patch"}});
  };
  if (is_patch && !patched_text && validation == FieldValidation::kStrict) {
    before = kube::Dump(tree);
  }
  if (auto decoded = kube::NormalizeTyped(kind.type, &tree, &problems); !decoded.ok()) {
    if (is_patch && !patched_text && before.empty()) {
      before = kube::Dump(tree);
    }
    const std::string& why = decoded.error().message();
    return refuse(patched_text ? ConverterText(why) : why);
  }
  for (const auto& field : duplicates) {
    problems.push_back(field);
  }
  SortByPosition(call.request->body, &problems);
  if (!problems.empty() && validation == FieldValidation::kStrict) {
    return refuse("strict decoding error: " + kube::Join(problems, ", "));
  }
  if (validation == FieldValidation::kWarn) {
    for (auto& text : problems) {
      call.Warn(std::move(text));
    }
  }
  kind.strategy->Default(&tree);
  return Ok();
}

Result<kube::Json> DecodeBody(Call& call, const BodyTarget& target, FieldValidation validation) {
  SUBLET_TRY(RawBody raw, ParseBody(call, validation != FieldValidation::kIgnore, target.kind));
  SUBLET_RETURN_IF_ERROR(CheckType(call, target, raw.tree));
  SUBLET_RETURN_IF_ERROR(
      DecodeTree(call, *target.kind, validation, std::move(raw.duplicate_fields), raw.tree, false));
  return std::move(raw.tree);
}

}  // namespace sublet::apiserver
