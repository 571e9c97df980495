#include "kube/json_patch.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "kube/object.h"

namespace sublet::kube {
namespace {

constexpr std::size_t kCopyBytesMax = 3u << 20;

// "/a~1b/0" -> {"a/b", "0"}; nullopt when it does not start with '/'. "" is the whole document.
std::optional<std::vector<std::string>> ParsePointer(std::string_view text) {
  std::vector<std::string> parts;
  if (text.empty()) {
    return parts;
  }
  if (text[0] != '/') {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '/') {
      parts.emplace_back();
    } else if (text[i] == '~' && i + 1 < text.size() &&
               (text[i + 1] == '0' || text[i + 1] == '1')) {
      parts.back().push_back(text[++i] == '0' ? '~' : '/');
    } else {
      parts.back().push_back(text[i]);
    }
  }
  return parts;
}

// An index into a list of `size` items; `limit` is the largest that is allowed, plus one.
std::optional<std::size_t> ParseIndex(std::string_view text, std::size_t size, std::size_t limit) {
  std::int64_t index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  if (index < 0) {
    index += static_cast<std::int64_t>(size);
  }
  if (index < 0 || static_cast<std::size_t>(index) >= limit) {
    return std::nullopt;
  }
  return static_cast<std::size_t>(index);
}

Json* Child(Json* parent, const std::string& part) {
  if (parent->is_object()) {
    auto& object = parent->get_ref<Json::object_t&>();
    const auto it = object.find(part);
    return it == object.end() ? nullptr : &it->second;
  }
  if (parent->is_array()) {
    const auto index = ParseIndex(part, parent->size(), parent->size());
    return index ? &(*parent)[*index] : nullptr;
  }
  return nullptr;
}

// The container of the last part, or nullptr.
Json* ParentOf(Json* root, const std::vector<std::string>& path) {
  Json* at = root;
  for (std::size_t i = 0; at != nullptr && i + 1 < path.size(); ++i) {
    at = Child(at, path[i]);
  }
  return at;
}

bool Add(Json* root, const std::vector<std::string>& path, Json value) {
  if (path.empty()) {
    *root = std::move(value);
    return true;
  }
  Json* parent = ParentOf(root, path);
  if (parent == nullptr) {
    return false;
  }
  if (parent->is_object()) {
    (*parent)[path.back()] = std::move(value);
    return true;
  }
  if (!parent->is_array()) {
    return false;
  }
  auto& items = parent->get_ref<Json::array_t&>();
  if (path.back() == "-") {
    items.push_back(std::move(value));
    return true;
  }
  // A negative index of an insertion counts from the end of the longer list.
  const auto index = ParseIndex(path.back(), items.size() + 1, items.size() + 1);
  if (!index) {
    return false;
  }
  items.insert(items.begin() + static_cast<std::ptrdiff_t>(*index), std::move(value));
  return true;
}

Json* Get(Json* root, const std::vector<std::string>& path) {
  if (path.empty()) {
    return root;
  }
  Json* parent = ParentOf(root, path);
  return parent == nullptr ? nullptr : Child(parent, path.back());
}

bool Remove(Json* root, const std::vector<std::string>& path) {
  Json* parent = path.empty() ? nullptr : ParentOf(root, path);
  if (parent == nullptr) {
    return false;
  }
  if (parent->is_object()) {
    return EraseMember(parent, path.back());
  }
  if (!parent->is_array()) {
    return false;
  }
  const auto index = ParseIndex(path.back(), parent->size(), parent->size());
  if (!index) {
    return false;
  }
  parent->erase(*index);
  return true;
}

struct PatchOperation {
  std::string_view op;
  std::vector<std::string> path;
  std::vector<std::string> from;
  const Json* value;
};

bool Run(const PatchOperation& operation, std::size_t* copied, Json* root) {
  const Json null;
  const Json& value = operation.value != nullptr ? *operation.value : null;
  if (operation.op == "add") {
    return Add(root, operation.path, value);
  }
  if (operation.op == "remove") {
    return Remove(root, operation.path);
  }
  if (operation.op == "replace") {
    if (Json* old = Get(root, operation.path)) {
      *old = value;
      return true;
    }
    // Kubernetes' library takes a member that is not there yet.
    const std::vector<std::string> above(operation.path.begin(), operation.path.end() - 1);
    const Json* parent = Get(root, above);
    return parent != nullptr && parent->is_object() && Add(root, operation.path, value);
  }
  if (operation.op == "test") {
    const Json* old = Get(root, operation.path);
    return old == nullptr ? value.is_null() : *old == value;
  }
  Json* source = Get(root, operation.from);
  if (source == nullptr) {
    return false;
  }
  Json moved = *source;
  if (operation.op == "move") {
    return Remove(root, operation.from) && Add(root, operation.path, std::move(moved));
  }
  *copied += Dump(moved).size();
  return *copied <= kCopyBytesMax && Add(root, operation.path, std::move(moved));
}

Result<PatchOperation> Decode(const Json& json) {
  if (!json.is_object()) {
    return BadRequest("json: cannot unmarshal into Go value of type jsonpatch.Operation");
  }
  PatchOperation operation;
  operation.op = FindString(json, {"op"});
  operation.value = Find(json, {"value"});
  const bool known = operation.op == "add" || operation.op == "remove" ||
                     operation.op == "replace" || operation.op == "test" ||
                     operation.op == "move" || operation.op == "copy";
  auto path = ParsePointer(FindString(json, {"path"}));
  auto from = ParsePointer(FindString(json, {"from"}));
  if (!known || Find(json, {"path"}) == nullptr || !path || !from) {
    return UnprocessablePatch();
  }
  operation.path = std::move(*path);
  operation.from = std::move(*from);
  return operation;
}

}  // namespace

Status UnprocessablePatch() {
  return Status(Reason::kInvalid, "the server rejected our request due to an error in our request")
      .With(StatusDetails());
}

Result<void> ApplyJsonPatch(const Json& patch, Json* target) {
  if (!patch.is_array()) {
    return BadRequest("json: cannot unmarshal " +
                      std::string(patch.is_object() ? "object" : "value") +
                      " into Go value of type jsonpatch.Patch");
  }
  if (patch.size() > kJsonPatchOperationsMax) {
    return {Status(Reason::kRequestEntityTooLarge,
                   "The allowed maximum operations in a JSON patch is " +
                       std::to_string(kJsonPatchOperationsMax) + ", got " +
                       std::to_string(patch.size()))};
  }
  Json work = *target;
  std::size_t copied = 0;
  for (const Json& one : patch) {
    SUBLET_TRY(const PatchOperation operation, Decode(one));
    if (!Run(operation, &copied, &work)) {
      return UnprocessablePatch();
    }
  }
  *target = std::move(work);
  return Ok();
}

void ApplyMergePatch(const Json& patch, Json* target) {
  if (!patch.is_object()) {
    *target = patch;
    return;
  }
  if (!target->is_object()) {
    *target = Json::object();
  }
  for (const auto& [key, value] : patch.get_ref<const Json::object_t&>()) {
    if (value.is_null()) {
      EraseMember(target, key);
    } else {
      ApplyMergePatch(value, &(*target)[key]);
    }
  }
}

}  // namespace sublet::kube
