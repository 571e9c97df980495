#include "kube/strategic_merge_patch.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/go_print.h"
#include "kube/object.h"

namespace sublet::kube {
namespace {

using schema::Field;
using schema::Type;

constexpr std::string_view kPatch = "$patch";
constexpr std::string_view kRetainKeysKey = "$retainKeys";
constexpr std::string_view kDeletePrefix = "$deleteFromPrimitiveList";
constexpr std::string_view kOrderPrefix = "$setElementOrder";

Status Internal(std::string message) { return {Reason::kUnknown, 500, std::move(message)}; }

// How a field is patched. A field that the schema does not know replaces.
struct Meta {
  Type type;  // of the value; false when unknown
  std::string merge_key;
  bool merge = false;
  bool replace = false;
};

Meta MetaOf(Type parent, std::string_view key) {
  Meta meta;
  if (!parent) {
    return meta;
  }
  if (parent.kind() == schema::ValueKind::kMap) {
    meta.type = parent.element();
    return meta;
  }
  if (parent.kind() != schema::ValueKind::kStruct) {
    return meta;
  }
  if (const Field field = parent.FindField(key)) {
    meta.type = field.type();
    meta.merge_key = field.merge_key();
    meta.merge = field.Has(schema::kPatchMerge);
    meta.replace = field.Has(schema::kPatchReplace);
  }
  return meta;
}

// Drops what carries a directive; false when the value itself goes.
bool RemoveDirectives(Json* value) {
  if (value->is_object()) {
    auto& object = value->get_ref<Json::object_t&>();
    if (object.find(kPatch) != object.end()) {
      return false;
    }
    for (auto it = object.begin(); it != object.end();) {
      it = RemoveDirectives(&it->second) ? std::next(it) : object.erase(it);
    }
  } else if (value->is_array()) {
    auto& items = value->get_ref<Json::array_t&>();
    std::erase_if(items, [](Json& item) { return !RemoveDirectives(&item); });
  }
  return true;
}

void DropNulls(Json* value) {
  if (value->is_object()) {
    auto& object = value->get_ref<Json::object_t&>();
    for (auto it = object.begin(); it != object.end();) {
      if (it->second.is_null()) {
        it = object.erase(it);
      } else {
        DropNulls(&it->second);
        ++it;
      }
    }
  } else if (value->is_array()) {
    for (Json& item : *value) {
      DropNulls(&item);
    }
  }
}

// Where `item` stands in `list`: by merge key for maps, by value otherwise; -1 when absent.
std::ptrdiff_t IndexOf(const Json::array_t& list, const Json& item, const std::string& merge_key) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (item.is_object()) {
      const Json* a = Find(item, {merge_key});
      const Json* b = Find(list[i], {merge_key});
      if (a != nullptr && b != nullptr && *a == *b) {
        return static_cast<std::ptrdiff_t>(i);
      }
    } else if (list[i] == item) {
      return static_cast<std::ptrdiff_t>(i);
    }
  }
  return -1;
}

void SortBy(const Json::array_t& order, const std::string& merge_key, Json::array_t* items) {
  std::vector<std::pair<std::ptrdiff_t, Json>> keyed;
  keyed.reserve(items->size());
  for (Json& item : *items) {
    const std::ptrdiff_t at = IndexOf(order, item, merge_key);
    keyed.emplace_back(at, std::move(item));
  }
  std::stable_sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) {
    return a.first >= 0 && b.first >= 0 && a.first < b.first;
  });
  for (std::size_t i = 0; i < keyed.size(); ++i) {
    (*items)[i] = std::move(keyed[i].second);
  }
}

// Interleaves what the patch orders with what only the server has, keeping both orders.
Json::array_t Interleave(Json::array_t merged, const Json::array_t& patch_order,
                         const Json::array_t& server_order, const std::string& merge_key) {
  Json::array_t from_patch;
  Json::array_t server_only;
  for (Json& item : merged) {
    (IndexOf(patch_order, item, merge_key) >= 0 ? from_patch : server_only)
        .push_back(std::move(item));
  }
  SortBy(patch_order, merge_key, &from_patch);
  SortBy(server_order, merge_key, &server_only);
  Json::array_t out;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < server_only.size() || j < from_patch.size()) {
    bool take_server = j >= from_patch.size();
    if (!take_server && i < server_only.size()) {
      const std::ptrdiff_t left = IndexOf(server_order, server_only[i], merge_key);
      const std::ptrdiff_t right = IndexOf(server_order, from_patch[j], merge_key);
      take_server = left >= 0 && right >= 0 && left < right;
    }
    out.push_back(std::move(take_server ? server_only[i++] : from_patch[j++]));
  }
  return out;
}

Result<void> MergeMap(Type type, Json patch, Json* original);

Status NoMergeKey(const Json& item, const std::string& merge_key) {
  return Internal("map: " + GoPrint(item) + " does not contain declared merge key: " + merge_key);
}

// Items with a directive act, the others are returned; *replaced when the list is replaced.
Result<Json::array_t> TakeSpecial(Json::array_t patch, const std::string& merge_key,
                                  Json::array_t* original, bool* replaced) {
  Json::array_t plain;
  for (Json& item : patch) {
    if (!item.is_object()) {
      return Internal("invalid element in a list of maps: " + GoPrint(item));
    }
    const Json* directive = Find(item, {kPatch});
    if (directive == nullptr) {
      plain.push_back(std::move(item));
    } else if (*directive == "delete") {
      const Json* key = Find(item, {merge_key});
      if (key == nullptr) {
        return NoMergeKey(item, merge_key);
      }
      std::erase_if(*original, [&](const Json& one) {
        const Json* other = Find(one, {merge_key});
        return other != nullptr && *other == *key;
      });
    } else if (*directive == "replace") {
      *replaced = true;
    } else if (*directive == "merge") {
      return Internal("merging lists cannot yet be specified in the patch");
    } else {
      return Internal("unknown patch type: " + GoPrint(*directive) + " in map: " + GoPrint(item));
    }
  }
  return plain;
}

Result<Json::array_t> MergeMaps(const Meta& meta, Json::array_t original, Json::array_t patch) {
  if (meta.merge_key.empty()) {
    return Internal("cannot merge lists without merge key for " +
                    std::string(meta.type ? meta.type.GoName() : ""));
  }
  bool replaced = false;
  SUBLET_TRY(Json::array_t plain,
             TakeSpecial(std::move(patch), meta.merge_key, &original, &replaced));
  if (replaced) {
    return plain;
  }
  const Json::array_t order = plain;
  Json::array_t merged = original;
  const Type element = meta.type ? meta.type.element() : Type();
  for (Json& item : plain) {
    if (Find(item, {meta.merge_key}) == nullptr) {
      return NoMergeKey(item, meta.merge_key);
    }
    const std::ptrdiff_t at = IndexOf(merged, item, meta.merge_key);
    if (at >= 0) {
      SUBLET_RETURN_IF_ERROR(
          MergeMap(element, std::move(item), &merged[static_cast<std::size_t>(at)]));
    } else {
      merged.push_back(std::move(item));
    }
  }
  return Interleave(std::move(merged), order, original, meta.merge_key);
}

Result<Json::array_t> MergeList(const Meta& meta, Json::array_t original, Json::array_t patch) {
  if (!meta.merge) {
    return patch;
  }
  if (original.empty() && patch.empty()) {
    return original;
  }
  const bool maps = !(patch.empty() ? original : patch).front().is_null() &&
                    (patch.empty() ? original : patch).front().is_object();
  if (maps) {
    return MergeMaps(meta, std::move(original), std::move(patch));
  }
  Json::array_t merged;
  for (const Json::array_t* list : {&original, &patch}) {
    for (const Json& item : *list) {
      if (std::find(merged.begin(), merged.end(), item) == merged.end()) {
        merged.push_back(item);
      }
    }
  }
  return Interleave(std::move(merged), patch, original, "");
}

Result<void> RetainKeys(Json::object_t* patch, Json::object_t* original) {
  const auto at = patch->find(kRetainKeysKey);
  if (at == patch->end()) {
    return Ok();
  }
  const Json list = std::move(at->second);
  patch->erase(at);
  const auto listed = [&](const std::string& key) {
    return std::find(list.begin(), list.end(), key) != list.end();
  };
  bool ok = list.is_array();
  for (const auto& [key, value] : *patch) {
    if (ok && !value.is_null() && !key.starts_with(kDeletePrefix) &&
        !key.starts_with(kOrderPrefix)) {
      ok = listed(key);
    }
  }
  if (!ok) {
    return BadRequest("invalid patch format of retainKeys");
  }
  std::erase_if(*original, [&](const auto& member) { return !listed(member.first); });
  return Ok();
}

// The directives $setElementOrder/<field>: merges that field and puts it in order.
Result<void> ApplyOrders(Type type, Json::object_t* patch, Json::object_t* original) {
  for (auto it = patch->begin(); it != patch->end();) {
    if (!it->first.starts_with(kOrderPrefix)) {
      ++it;
      continue;
    }
    const std::string directive = it->first;
    const Json order = std::move(it->second);
    it = patch->erase(it);
    if (directive.size() <= kOrderPrefix.size() + 1 || directive[kOrderPrefix.size()] != '/') {
      return BadRequest("invalid patch format of setElementOrder list");
    }
    const std::string key = directive.substr(kOrderPrefix.size() + 1);
    if (!order.is_array()) {
      return Internal("expected a []interface {}, but received a " + GoTypeName(order));
    }
    const auto mine = original->find(key);
    const auto theirs = patch->find(key);
    const bool in_original = mine != original->end();
    const bool in_patch = theirs != patch->end();
    if (!in_original && !in_patch) {
      continue;
    }
    for (const Json* list :
         {in_original ? &mine->second : nullptr, in_patch ? &theirs->second : nullptr}) {
      if (list != nullptr && !list->is_array()) {
        return Internal("expected a []interface {}, but received a " + GoTypeName(*list));
      }
    }
    const Meta meta = MetaOf(type, key);
    const Json::array_t server_order =
        in_original ? mine->second.get_ref<const Json::array_t&>() : Json::array_t();
    Json::array_t merged = server_order;
    if (in_patch && in_original) {
      SUBLET_TRY(merged, MergeList(meta, server_order, theirs->second.get<Json::array_t>()));
    } else if (in_patch) {
      Json cleaned = theirs->second;
      (void)RemoveDirectives(&cleaned);
      merged = cleaned.get<Json::array_t>();
    }
    const auto& order_list = order.get_ref<const Json::array_t&>();
    (*original)[key] = Interleave(std::move(merged), order_list, server_order, meta.merge_key);
    if (in_patch) {
      const bool erasing_next = it == theirs;
      const auto next = patch->erase(theirs);
      it = erasing_next ? next : it;
    }
  }
  return Ok();
}

// One member of a patch object, directives of the object itself already done.
Result<void> MergeMember(Type type, const std::string& patch_key, Json value,
                         Json::object_t* original) {
  std::string key = patch_key;
  const bool deletes = key.starts_with(kDeletePrefix);
  if (deletes) {
    if (key.size() <= kDeletePrefix.size() + 1 || key[kDeletePrefix.size()] != '/') {
      return BadRequest("invalid patch format of primitive list");
    }
    key.erase(0, kDeletePrefix.size() + 1);
  }
  if (value.is_null()) {
    original->erase(key);
    return Ok();
  }
  const auto at = original->find(key);
  const bool same_shape = at != original->end() && ((at->second.is_object() && value.is_object()) ||
                                                    (at->second.is_array() && value.is_array()));
  if (!same_shape) {
    if (!deletes) {
      DropNulls(&value);
      if (RemoveDirectives(&value)) {
        (*original)[key] = std::move(value);
      } else {
        original->erase(key);
      }
    }
    return Ok();
  }
  const Meta meta = MetaOf(type, key);
  if (value.is_object()) {
    if (meta.replace) {
      at->second = std::move(value);
      return Ok();
    }
    return MergeMap(meta.type, std::move(value), &at->second);
  }
  auto& mine = at->second.get_ref<Json::array_t&>();
  if (deletes) {
    std::erase_if(mine, [&](const Json& item) {
      return std::find(value.begin(), value.end(), item) != value.end();
    });
    return Ok();
  }
  SUBLET_TRY(Json::array_t merged,
             MergeList(meta, std::move(mine), std::move(value.get_ref<Json::array_t&>())));
  at->second = std::move(merged);
  return Ok();
}

Result<void> MergeMap(Type type, Json patch, Json* original) {
  auto& members = patch.get_ref<Json::object_t&>();
  if (const auto directive = members.find(kPatch); directive != members.end()) {
    if (directive->second == "replace") {
      members.erase(directive);
      *original = std::move(patch);
      return Ok();
    }
    if (directive->second == "delete") {
      *original = Json::object();
      return Ok();
    }
    return Internal("unknown patch type: " + GoPrint(directive->second) +
                    " in map: " + GoPrint(patch));
  }
  if (!original->is_object()) {
    *original = Json::object();
  }
  auto& target = original->get_ref<Json::object_t&>();
  SUBLET_RETURN_IF_ERROR(RetainKeys(&members, &target));
  SUBLET_RETURN_IF_ERROR(ApplyOrders(type, &members, &target));
  for (auto& [key, value] : members) {
    SUBLET_RETURN_IF_ERROR(MergeMember(type, key, std::move(value), &target));
  }
  return Ok();
}

}  // namespace

Result<void> ApplyStrategicMergePatch(Type type, Json patch, Json* target) {
  if (!patch.is_object()) {
    return BadRequest("invalid JSON document");
  }
  return MergeMap(type, std::move(patch), target);
}

}  // namespace sublet::kube
