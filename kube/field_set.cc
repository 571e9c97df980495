#include "kube/field_set.h"

#include <nlohmann/json.hpp>

#include "kube/field_set_path.h"

namespace sublet::kube {
namespace {

bool HasSelf(const Json& node) { return node.empty() || node.contains("."); }

// `node` with or without itself as a member; null when nothing is left.
Json WithSelf(Json::object_t below, bool self) {
  if (self && !below.empty()) {
    below.emplace(".", Json::object());
  }
  if (!self && below.empty()) {
    return nullptr;
  }
  return Json(std::move(below));
}

// Combines two nodes level by level. `keep_self` decides on the path itself, `one_side` on what only
// `a` has below it.
enum class Mode : std::uint8_t { kDifference, kRecursiveDifference, kIntersection };

Json Combine(const Json& a, const Json& b, Mode mode, bool is_root) {
  const bool self_a = !is_root && HasSelf(a);
  const bool self_b = !is_root && HasSelf(b);
  bool self = false;
  if (mode == Mode::kIntersection) {
    self = self_a && self_b;
  } else {
    if (mode == Mode::kRecursiveDifference && self_b) {
      return nullptr;
    }
    self = self_a && !self_b;
  }
  Json::object_t below;
  const auto& left = a.get_ref<const Json::object_t&>();
  const auto& right = b.get_ref<const Json::object_t&>();
  for (const auto& [step, child] : left) {
    if (step == ".") {
      continue;
    }
    const auto other = right.find(step);
    if (other == right.end()) {
      if (mode != Mode::kIntersection) {
        below.emplace_hint(below.end(), step, child);
      }
      continue;
    }
    Json combined = Combine(child, other->second, mode, false);
    if (!combined.is_null()) {
      below.emplace_hint(below.end(), step, std::move(combined));
    }
  }
  return WithSelf(std::move(below), self);
}

Json Run(const FieldSet& a, const FieldSet& b, Mode mode) {
  if (IsEmptySet(a)) {
    return nullptr;
  }
  if (IsEmptySet(b)) {
    return mode == Mode::kIntersection ? Json() : a;
  }
  return Combine(a, b, mode, true);
}

void UnionInto(Json* a, const Json& b, bool is_root) {
  const bool self = !is_root && (HasSelf(*a) || HasSelf(b));
  auto& left = a->get_ref<Json::object_t&>();
  for (const auto& [step, child] : b.get_ref<const Json::object_t&>()) {
    if (step == ".") {
      continue;
    }
    const auto [at, inserted] = left.try_emplace(step, child);
    if (!inserted) {
      UnionInto(&at->second, child, false);
    }
  }
  if (self && !left.empty()) {
    left.try_emplace(".", Json::object());
  }
}

void Visit(const Json& node, const std::string& prefix,
           const std::function<void(const std::string&)>& visit) {
  // Members of this level first, then what is below, as upstream walks its sets.
  for (const auto& [step, child] : node.items()) {
    if (step != "." && HasSelf(child)) {
      visit(prefix + fields::PrintStep(step));
    }
  }
  for (const auto& [step, child] : node.items()) {
    if (step != "." && !child.empty()) {
      Visit(child, prefix + fields::PrintStep(step), visit);
    }
  }
}

}  // namespace

FieldSet SetDifference(const FieldSet& a, const FieldSet& b) { return Run(a, b, Mode::kDifference); }
FieldSet SetIntersection(const FieldSet& a, const FieldSet& b) {
  return Run(a, b, Mode::kIntersection);
}
FieldSet SetRecursiveDifference(const FieldSet& a, const FieldSet& b) {
  return Run(a, b, Mode::kRecursiveDifference);
}

FieldSet SetUnion(FieldSet a, const FieldSet& b) {
  if (IsEmptySet(a)) {
    return b;
  }
  if (!IsEmptySet(b)) {
    UnionInto(&a, b, true);
  }
  return a;
}

FieldSet EnsureNamedFields(schema::Type type, const FieldSet& set) {
  if (IsEmptySet(set)) {
    return set;
  }
  // The shape comes from the schema alone: a set has no values to deduce from.
  const fields::View view = fields::Look(type, nullptr);
  Json out = Json::object();
  for (const auto& [step, child] : set.items()) {
    if (step == ".") {
      out[step] = child;
      continue;
    }
    schema::Type below;
    bool named = false;
    if (step.starts_with("f:") && view.shape == fields::Shape::kMap) {
      const std::string_view name = std::string_view(step).substr(2);
      below = view.Member(name);
      named = view.IsNamedField(name);
    } else if (step.starts_with("k:") && view.shape == fields::Shape::kList) {
      below = view.Item();
    }
    if (child.empty()) {
      out[step] = child;
      continue;
    }
    Json inner = EnsureNamedFields(below, child);
    if (named) {
      inner["."] = Json::object();
    }
    out[step] = std::move(inner);
  }
  return out;
}

void ForEachPath(const FieldSet& set, const std::function<void(const std::string&)>& visit) {
  if (!IsEmptySet(set)) {
    Visit(set, "", visit);
  }
}

bool IsFieldSet(const Json& json) {
  if (!json.is_object()) {
    return false;
  }
  for (const auto& [step, child] : json.items()) {
    if (step == ".") {
      continue;
    }
    const bool known = step.size() >= 2 && step[1] == ':' &&
                       (step[0] == 'f' || step[0] == 'k' || step[0] == 'v' || step[0] == 'i');
    if (!known || !IsFieldSet(child)) {
      return false;
    }
    const std::string_view rest = std::string_view(step).substr(2);
    if ((step[0] == 'k' || step[0] == 'v') && !ParseJson(rest).ok()) {
      return false;
    }
    if (step[0] == 'i' &&
        (rest.empty() || rest.find_first_not_of("-0123456789") != std::string_view::npos)) {
      return false;
    }
  }
  return true;
}

}  // namespace sublet::kube
