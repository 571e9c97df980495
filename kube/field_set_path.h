// Path steps and the shape of values for field sets. Used by field_set*.cc only. Threads: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kube/json.h"
#include "kube/schema/schema.h"

namespace sublet::kube::fields {

enum class Shape : std::uint8_t { kScalar, kList, kMap };

// How a value is looked at: its shape by schema, or by what it is when the schema says anything.
struct View {
  Shape shape = Shape::kScalar;
  bool atomic = false;
  schema::Type type;  // false when deduced from the value

  // The type of a member of a map, or of an item of a list; false = deduced.
  schema::Type Member(std::string_view name) const;
  schema::Type Item() const { return type ? type.element() : schema::Type(); }
  bool IsNamedField(std::string_view name) const;
  bool is_set() const { return type && type.Has(schema::kListSet); }
};

// `value` may be nullptr. A type that allows several shapes takes the one of the value.
View Look(schema::Type type, const Json* value);

// "f:name".
std::string FieldStep(std::string_view name);
// "k:{...}" or "v:..." of an item of a keyed list or set; nullopt when it has no key at all or is
// of the wrong kind. `problem` then says why, in upstream's words; may be nullptr.
std::optional<std::string> ItemStep(const View& list, const Json& item, std::string* problem);
// The printed form of a step: ".name", "[name=\"x\"]", "[=\"v\"]", "[3]".
std::string PrintStep(std::string_view step);

// Adds the path itself to the set at `node`.
void AddSelf(Json* node);

}  // namespace sublet::kube::fields
