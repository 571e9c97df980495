#include "apiserver/handlers/selection.h"

#include <algorithm>

#include "kube/kinds/kind_logic.h"

namespace sublet::apiserver {
namespace {

constexpr std::string_view kName = "metadata.name";
constexpr std::string_view kNamespace = "metadata.namespace";

// Kinds with selectable fields of their own have their own sentence for an unknown one.
Status UnknownField(const StoredType& type, std::string_view field) {
  if (!type.fields.empty() || type.is_custom) {
    return BadRequest("field label not supported: " + std::string(field));
  }
  std::string known = "\"metadata.name\", \"metadata.namespace\"";
  for (const auto& path : type.fields) {
    known += ", \"" + path + "\"";
  }
  return BadRequest("\"" + std::string(field) + "\" is not a known field selector: only " + known);
}

// A version that is kept as another one (events.k8s.io) has its own names for the fields of that
// one; "" for a field that it does not offer.
std::string_view StoredField(const Resource& resource, std::string_view field) {
  if (field == kName || field == kNamespace) {
    return field;
  }
  if (!resource.kind->is_custom && resource.group() != resource.type->storage_group) {
    for (const auto* known : kube::FindSelectableFields(resource.group(), resource.plural())) {
      if (known->field == field) {
        return known->path.empty() ? known->field : known->path;
      }
    }
    return {};
  }
  const auto& known = resource.type->fields;
  return std::find(known.begin(), known.end(), field) != known.end() ? field : std::string_view();
}

}  // namespace

Result<Selection> Selection::Parse(const Resource& resource, std::string_view label_selector,
                                   std::string_view field_selector) {
  Selection selection;
  selection.type_ = resource.type;
  if (!label_selector.empty()) {
    SUBLET_TRY(selection.labels_, kube::LabelSelector::Parse(label_selector));
  }
  if (!field_selector.empty()) {
    SUBLET_TRY(const auto asked, kube::FieldSelector::Parse(field_selector));
    auto terms = asked.terms();
    for (auto& term : terms) {
      const auto stored = StoredField(resource, term.field);
      if (stored.empty()) {
        return UnknownField(*resource.type, term.field);
      }
      term.field = std::string(stored);
    }
    selection.fields_ = kube::FieldSelector(std::move(terms));
  }
  return selection;
}

std::string_view Selection::single_name() const {
  const std::string* value = fields_.RequiredValue(kName);
  return value == nullptr ? std::string_view() : std::string_view(*value);
}

std::string_view Selection::single_namespace() const {
  const std::string* value = fields_.RequiredValue(kNamespace);
  return value == nullptr ? std::string_view() : std::string_view(*value);
}

std::string_view Selection::Field(std::string_view field, std::string_view key,
                                  const storage::Value& value, std::string& scratch) const {
  if (field == kName) {
    return SplitKey(key, type_->prefix.size(), type_->namespaced).name;
  }
  if (field == kNamespace) {
    return SplitKey(key, type_->prefix.size(), type_->namespaced).namespace_name;
  }
  const auto& facts = FactsOf(value);
  for (std::size_t i = 0; i < type_->fields.size(); ++i) {
    if (type_->fields[i] != field) {
      continue;
    }
    if (i < facts.fields.size()) {
      return facts.fields[i];
    }
    scratch = FieldValue(value, field);
    return scratch;
  }
  return {};
}

bool Selection::Matches(std::string_view key, const storage::Value& value) const {
  if (!labels_.empty()) {
    const auto& facts = FactsOf(value);
    std::string text;
    const bool match = labels_.MatchesWith([&](std::string_view label) -> const std::string* {
      std::string_view found;
      if (!facts.FindLabel(label, &found)) {
        return nullptr;
      }
      text = found;
      return &text;
    });
    if (!match) {
      return false;
    }
  }
  if (fields_.empty()) {
    return true;
  }
  // One scratch per term: a lookup's text must live until the term is judged, and terms are judged
  // one after the other.
  std::string scratch;
  return fields_.Matches([&](std::string_view field) { return Field(field, key, value, scratch); });
}

}  // namespace sublet::apiserver
