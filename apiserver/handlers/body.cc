#include "apiserver/handlers/body.h"

#include <nlohmann/json.hpp>

#include "kube/field_error.h"
#include "kube/protobuf.h"
#include "kube/typed.h"

namespace sublet::apiserver {
namespace {

std::string Quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

// "<Kind> in version "<v>" cannot be handled as a <Expected>: <why>".
Status CannotHandle(const kube::GroupVersionKind& actual, std::string_view expected,
                    std::string_view why) {
  return BadRequest(actual.kind + " in version " + Quoted(actual.version) +
                    " cannot be handled as a " + std::string(expected) + ": " + std::string(why));
}

// The start of a body, as Kubernetes shows it for what it cannot recognise.
std::string Summary(std::string_view body) {
  constexpr std::size_t kBytesMax = 30;
  bool binary = false;
  for (const char c : body.substr(0, kBytesMax)) {
    binary = binary || static_cast<unsigned char>(c) >= 0x80 || c == 0;
  }
  std::string shown;
  if (body.size() > kBytesMax) {
    shown = std::string(body.substr(0, kBytesMax)) + " ...";
  } else {
    shown = std::string(body);
  }
  if (!binary) {
    return shown;
  }
  std::string hex;
  for (const char c : body.substr(0, kBytesMax)) {
    char text[8];
    std::snprintf(text, sizeof(text), "%02x", static_cast<unsigned char>(c));
    hex += text;
  }
  return hex;
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
          (it->is_number() ? "number" : it->is_boolean() ? "bool" : it->is_array() ? "array" : "object") +
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
  if (actual.kind != expected.kind) {
    if (call.catalog->FindKind(actual.group, actual.version, actual.kind) != nullptr) {
      return CannotHandle(actual, expected.kind,
                          "converting (" + actual.version + "." + actual.kind + ") to (" +
                              expected.version + "." + expected.kind + "): unknown conversion");
    }
    return CannotHandle(actual, expected.kind,
                        "no kind " + Quoted(actual.kind) + " is registered for version " +
                            Quoted(actual.ApiVersion()) +
                            " in scheme \"pkg/api/legacyscheme/scheme.go:30\"");
  }
  if (actual.ApiVersion() != expected.ApiVersion()) {
    return BadRequest("the API version in the data (" + actual.ApiVersion() +
                      ") does not match the expected API version (" + expected.ApiVersion() + ")");
  }
  tree["apiVersion"] = expected.ApiVersion();
  tree["kind"] = expected.kind;
  return Ok();
}

}  // namespace

Result<RawBody> ParseBody(const Call& call, bool find_duplicates) {
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
      auto tree = kube::ParseYaml(body);
      if (!tree.ok()) {
        return BadRequest("couldn't get version/kind; json parse error: " +
                          tree.error().message());
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
        return BadRequest("couldn't get version/kind; json parse error: " +
                          tree.error().message());
      }
      raw.tree = std::move(*tree);
      break;
    }
  }
  if (!raw.tree.is_object()) {
    return BadRequest("couldn't get version/kind; json parse error: json: cannot unmarshal " +
                      std::string(raw.tree.is_array()    ? "array"
                                  : raw.tree.is_string() ? "string"
                                  : raw.tree.is_number() ? "number"
                                                         : "value") +
                      " into Go value of type struct { APIVersion string \"json:\\\"apiVersion,"
                      "omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }");
  }
  return raw;
}

Result<void> DecodeTree(Call& call, const kube::Kind& kind, FieldValidation validation,
                        std::vector<std::string> duplicates, kube::Json& tree, bool is_patch) {
  std::vector<std::string> problems;
  std::string patched_text;
  const auto refuse = [&](std::string_view why) -> Status {
    if (!is_patch) {
      return CannotHandle(kind.gvk, kind.gvk.kind, why);
    }
    return Invalid("", "", "",
                   {{"FieldValueInvalid",
                     "Invalid value: " + Quoted(patched_text) + ": " + std::string(why), "patch"}});
  };
  if (is_patch && validation == FieldValidation::kStrict) {
    patched_text = kube::Dump(tree);
  }
  if (auto decoded = kube::NormalizeTyped(kind.type, &tree, &problems); !decoded.ok()) {
    if (is_patch && patched_text.empty()) {
      patched_text = kube::Dump(tree);
    }
    return refuse(decoded.error().message());
  }
  for (const auto& field : duplicates) {
    problems.push_back("duplicate field " + Quoted(field));
  }
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
  SUBLET_TRY(RawBody raw, ParseBody(call, validation != FieldValidation::kIgnore));
  SUBLET_RETURN_IF_ERROR(CheckType(call, target, raw.tree));
  SUBLET_RETURN_IF_ERROR(DecodeTree(call, *target.kind, validation,
                                    std::move(raw.duplicate_fields), raw.tree, false));
  return std::move(raw.tree);
}

}  // namespace sublet::apiserver
