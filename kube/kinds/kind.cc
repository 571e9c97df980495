#include "kube/kinds/kind.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/object.h"

namespace sublet::kube {

void Strategy::Default(Json*) const {}
void Strategy::PrepareCreate(const WriteContext&, Json*) const {}
void Strategy::PrepareUpdate(const WriteContext&, const Json&, Json*) const {}

void Strategy::PrepareStatusUpdate(const WriteContext&, const Json& old, Json* object) const {
  // Status and metadata are the new object's, the rest the old one's. Most status writes carry the
  // rest unchanged: comparing costs a fraction of copying.
  auto& members = object->get_ref<Json::object_t&>();
  std::erase_if(members, [&old](const auto& member) {
    return member.first != "status" && member.first != "metadata" && !old.contains(member.first);
  });
  for (const auto& [key, value] : old.get_ref<const Json::object_t&>()) {
    if (key == "status" || (key == "metadata" && members.contains(key))) {
      continue;
    }
    Json& slot = members[key];
    if (slot != value) {
      slot = value;
    }
  }
}

void Strategy::ValidateCreate(const Json&, FieldErrors*) const {}
void Strategy::ValidateUpdate(const Json&, const Json&, FieldErrors*) const {}
void Strategy::ValidateStatusUpdate(const Json&, const Json&, FieldErrors*) const {}
void Strategy::Warn(const Json&, const Json*, std::vector<std::string>*) const {}

void Strategy::PrepareSubresource(std::string_view, const WriteContext& context, const Json& old,
                                  Json* object) const {
  PrepareUpdate(context, old, object);
}
void Strategy::ValidateSubresource(std::string_view, const Json& object, const Json& old,
                                   FieldErrors* errors) const {
  ValidateUpdate(object, old, errors);
}

std::vector<Column> Strategy::Columns() const {
  return {{"Name", "string", "name", "", 0}, {"Created At", "date", "", "", 0}};
}

Json Strategy::Cells(const Json& object, WallTime) const {
  return Json::array({std::string(NameOf(object)),
                      std::string(FindString(object, {"metadata", "creationTimestamp"}))});
}

Json Strategy::RowConditions(const Json&) const { return nullptr; }
std::vector<std::string_view> Strategy::SelectableFields() const { return {}; }
std::string Strategy::SelectableValue(const Json&, std::string_view) const { return ""; }

std::optional<std::int64_t> Strategy::GracePeriod(const Json&, std::optional<std::int64_t>) const {
  return std::nullopt;
}

void Strategy::ToStorage(Json*) const {}
void Strategy::FromStorage(Json*) const {}

bool Kind::HasVerb(std::string_view verb) const {
  return std::find(verbs.begin(), verbs.end(), verb) != verbs.end();
}

const Subresource* Kind::FindSubresource(std::string_view name) const {
  const auto it = std::find_if(subresources.begin(), subresources.end(),
                               [&](const Subresource& one) { return one.name == name; });
  return it == subresources.end() ? nullptr : &*it;
}

}  // namespace sublet::kube
