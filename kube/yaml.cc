// YAML to tree and back. yaml-cpp's event parser feeds a builder that applies the YAML 1.1 scalar
// rules of sigs.k8s.io/yaml. Exceptions of yaml-cpp stop here.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kube/json.h"
#include "kube/yaml_scalar.h"
#include "kube/yaml_strict.h"

namespace sublet::kube {
namespace {

// Aliases may multiply nodes; more than this in one document is an attack, not a manifest.
constexpr std::size_t kAliasNodesMax = 200'000;
constexpr std::size_t kYamlDuplicatesMax = 10;

// Thrown inside yaml-cpp's parser and caught in this file: the only way out of its callbacks.
struct BuildError {
  std::string message;
};

std::size_t CountNodes(const Json& value) {
  std::size_t count = 1;
  if (value.is_structured()) {
    for (const Json& child : value) {
      count += CountNodes(child);
    }
  }
  return count;
}

class Builder final : public YAML::EventHandler {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Leaf(mark, anchor, nullptr, "null");
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto it = anchors_.find(anchor);
    if (it == anchors_.end()) {
      throw BuildError{At(mark) + "anchor contains itself"};
    }
    alias_nodes_ += CountNodes(it->second);
    if (alias_nodes_ > kAliasNodesMax) {
      throw BuildError{At(mark) + "document contains excessive aliasing"};
    }
    Leaf(mark, 0, it->second, it->second.is_string() ? it->second.get<std::string>() : "");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    Leaf(mark, anchor, ResolveYamlScalar(tag, value), value);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(mark, anchor, Json::array());
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(mark, anchor, Json::object());
  }
  void OnMapEnd() override { Close(); }

  bool used() const { return used_; }
  std::vector<std::string> TakeDuplicates() { return std::move(duplicates_); }
  Json Take() { return std::move(root_); }

 private:
  struct Frame {
    Json value;
    YAML::anchor_t anchor = 0;
    bool has_key = false;
    std::string key;
    int key_line = 0;
    std::vector<Json> merges;  // values of "<<"
  };

  static std::string At(const YAML::Mark& mark) {
    return "line " + std::to_string(mark.line + 1) + ", column " + std::to_string(mark.column + 1) +
           ": ";
  }
  void Open(const YAML::Mark& mark, YAML::anchor_t anchor, Json container) {
    if (stack_.size() >= limits_.depth_max) {
      throw BuildError{At(mark) + "exceeded max depth"};
    }
    if (!stack_.empty() && stack_.back().value.is_object() && !stack_.back().has_key) {
      throw BuildError{At(mark) + "invalid map key: a key must be a scalar"};
    }
    stack_.push_back({.value = std::move(container), .anchor = anchor, .key = {}, .merges = {}});
  }
  void Close() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    for (const Json& merge : frame.merges) {
      Merge(merge, &frame.value);
    }
    if (frame.anchor != 0) {
      anchors_[frame.anchor] = frame.value;
    }
    Put(std::move(frame.value));
  }
  // Keys that are there already win over merged ones.
  static void Merge(const Json& from, Json* into) {
    if (from.is_object()) {
      for (const auto& [key, value] : from.items()) {
        into->emplace(key, value);
      }
    } else if (from.is_array()) {
      for (const Json& item : from) {
        if (item.is_object()) {
          Merge(item, into);
        }
      }
    }
  }
  void Leaf(const YAML::Mark& mark, YAML::anchor_t anchor, Json value, const std::string& text) {
    if (anchor != 0) {
      anchors_[anchor] = value;
    }
    if (!stack_.empty() && stack_.back().value.is_object() && !stack_.back().has_key) {
      if (value.is_structured()) {
        throw BuildError{At(mark) + "invalid map key: a key must be a scalar"};
      }
      stack_.back().has_key = true;
      stack_.back().key = YamlKeyText(value, text);
      stack_.back().key_line = mark.line + 1;
      return;
    }
    Put(std::move(value));
  }
  void Put(Json value) {
    used_ = true;
    if (stack_.empty()) {
      root_ = std::move(value);
      return;
    }
    Frame& top = stack_.back();
    if (top.value.is_array()) {
      top.value.push_back(std::move(value));
      return;
    }
    top.has_key = false;
    if (top.key == "<<" && value.is_structured()) {
      top.merges.push_back(std::move(value));
      return;
    }
    if (top.value.contains(top.key) && duplicates_.size() < kYamlDuplicatesMax) {
      duplicates_.push_back("line " + std::to_string(top.key_line) + ": key \"" + top.key +
                            "\" already set in map");
    }
    top.value[top.key] = std::move(value);
  }

  const JsonLimits limits_;
  Json root_;
  bool used_ = false;
  std::size_t alias_nodes_ = 0;
  std::vector<std::string> duplicates_;
  std::vector<Frame> stack_;
  std::map<YAML::anchor_t, Json> anchors_;
};

bool LooksLikeJson(std::string_view text) {
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  return start != std::string_view::npos && text[start] == '{';
}

// Reads up to `documents_max` documents that hold something.
Result<std::vector<Json>> ParseDocuments(std::string_view text, const JsonLimits& limits,
                                         std::size_t documents_max,
                                         std::vector<std::string>* duplicates = nullptr) {
  if (text.size() > limits.bytes_max) {
    return Status(Reason::kRequestEntityTooLarge,
                  "Request entity too large: limit is " + std::to_string(limits.bytes_max));
  }
  std::vector<Json> documents;
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (documents.size() < documents_max) {
      Builder builder(limits);
      if (!parser.HandleNextDocument(builder)) {
        break;
      }
      if (duplicates != nullptr) {
        *duplicates = builder.TakeDuplicates();
      }
      Json document = builder.Take();
      if (!document.is_null() || documents_max == 1) {
        documents.push_back(std::move(document));
      }
    }
  } catch (const BuildError& error) {
    return BadRequest("error converting YAML to JSON: yaml: " + error.message);
  } catch (const YAML::Exception& error) {
    // In the words of the parser that clients know, where there is a word for it.
    const std::string line = "line " + std::to_string(error.mark.line + 1);
    if (error.msg == "illegal map value") {
      return BadRequest("error converting YAML to JSON: yaml: " +
                        (error.mark.line > 0 ? line + ": " : std::string()) +
                        "mapping values are not allowed in this context");
    }
    return BadRequest("error converting YAML to JSON: yaml: " + line + ", column " +
                      std::to_string(error.mark.column + 1) + ": " + error.msg);
  } catch (const std::exception& error) {  // yaml-cpp lets a few standard ones through
    return BadRequest(std::string("error converting YAML to JSON: yaml: ") + error.what());
  }
  return documents;
}

void EmitYaml(const Json& value, int indent, bool after_dash, std::string* out);

void EmitObject(const Json& value, int indent, bool after_dash, std::string* out) {
  bool first = true;
  for (const auto& [key, child] : value.items()) {
    if (!(first && after_dash)) {
      out->append(static_cast<std::size_t>(indent), ' ');
    }
    first = false;
    out->append(FormatYamlString(key, indent)).append(":");
    if (child.is_object() && !child.empty()) {
      out->push_back('\n');
      EmitYaml(child, indent + 2, false, out);
    } else if (child.is_array() && !child.empty()) {
      out->push_back('\n');
      EmitYaml(child, indent, false, out);  // Go's emitter does not indent a list under its key
    } else {
      out->push_back(' ');
      EmitYaml(child, indent + 2, false, out);
    }
  }
}

void EmitYaml(const Json& value, int indent, bool after_dash, std::string* out) {
  if (value.is_object() && !value.empty()) {
    return EmitObject(value, indent, after_dash, out);
  }
  if (value.is_array() && !value.empty()) {
    bool first = true;
    for (const Json& child : value) {
      if (!(first && after_dash)) {
        out->append(static_cast<std::size_t>(indent), ' ');
      }
      first = false;
      out->append("- ");
      EmitYaml(child, indent + 2, true, out);
    }
    return;
  }
  if (value.is_string()) {
    out->append(FormatYamlString(value.get_ref<const std::string&>(), indent));
  } else {
    AppendJson(value, out);
  }
  out->push_back('\n');
}

}  // namespace

Result<Json> ParseYaml(std::string_view text, const JsonLimits& limits) {
  if (LooksLikeJson(text)) {
    // What most clients call YAML is JSON; a flow mapping that is not JSON takes the slow path.
    if (auto json = ParseJson(text, limits); json.ok()) {
      return json;
    }
  }
  SUBLET_TRY(std::vector<Json> documents, ParseDocuments(text, limits, 1));
  return documents.empty() ? Json(nullptr) : std::move(documents.front());
}

Result<Json> ParseYamlStrict(std::string_view text, const JsonLimits& limits,
                             std::vector<std::string>* duplicates) {
  if (LooksLikeJson(text)) {
    std::vector<std::string> twice;
    if (auto json = ParseJsonStrict(text, limits, &twice); json.ok() && twice.empty()) {
      return json;
    }
  }
  SUBLET_TRY(std::vector<Json> documents, ParseDocuments(text, limits, 1, duplicates));
  return documents.empty() ? Json(nullptr) : std::move(documents.front());
}

Result<std::vector<Json>> ParseYamlDocuments(std::string_view text, const JsonLimits& limits) {
  return ParseDocuments(text, limits, 100'000);
}

std::string ToYaml(const Json& value) {
  std::string out;
  EmitYaml(value, 0, false, &out);
  return out;
}

}  // namespace sublet::kube
