// KindLogic: the functions of a built-in kind beyond data, as a row of pointers; a null pointer
// means the generic behaviour of Strategy. logic.cc holds the one ordered list. The functions live
// in logic_<group>.cc and validate_<group>.cc. Threads: any.
#pragma once

#include <string_view>
#include <vector>

#include "kube/kinds/kind.h"

namespace sublet::kube {

struct KindLogic {
  std::string_view group;
  std::string_view resource;
  void (*prepare_create)(const WriteContext&, Json* object) = nullptr;
  void (*prepare_update)(const WriteContext&, const Json& old, Json* object) = nullptr;
  // Instead of the generic part of a status update when `replaces_status` says so, else after it.
  void (*prepare_status)(const WriteContext&, const Json& old, Json* object) = nullptr;
  bool replaces_status = false;
  void (*validate_create)(const Json& object, FieldErrors*) = nullptr;
  void (*validate_update)(const Json& object, const Json& old, FieldErrors*) = nullptr;
  void (*validate_status)(const Json& object, const Json& old, FieldErrors*) = nullptr;
  void (*prepare_subresource)(std::string_view subresource, const WriteContext&, const Json& old,
                              Json* object) = nullptr;
  void (*validate_subresource)(std::string_view subresource, const Json& object, const Json& old,
                               FieldErrors*) = nullptr;
  void (*warn)(const Json& object, const Json* old, std::vector<std::string>*) = nullptr;
  void (*to_storage)(Json* object) = nullptr;
  void (*from_storage)(Json* object) = nullptr;
};

// nullptr: the kind is generic.
const KindLogic* FindKindLogic(std::string_view group, std::string_view version,
                               std::string_view resource);

// Field selectors of a kind beside metadata.name and metadata.namespace.
struct SelectableField {
  std::string_view group;
  std::string_view resource;
  std::string_view field;  // as clients write it: "spec.nodeName"
  // Where it stands when that is not the field itself; "" otherwise. In a version that is kept as
  // another one: the name of that one's field.
  std::string_view path;
  std::string_view absent;        // the text of an absent value: "false", "0", ""
  std::string_view or_path = "";  // looked at when there is no text at `path`
};
std::vector<const SelectableField*> FindSelectableFields(std::string_view group,
                                                         std::string_view resource);

}  // namespace sublet::kube
