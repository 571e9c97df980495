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

Json Intersect(const Json& a, const Json& b, bool is_root) {
  Json::object_t below;
  const auto& right = b.get_ref<const Json::object_t&>();
  for (const auto& [step, child] : a.get_ref<const Json::object_t&>()) {
    const auto other = right.find(step);
    if (step == "." || other == right.end()) {
      continue;
    }
    Json both = Intersect(child, other->second, false);
    if (!both.is_null()) {
      below.emplace_hint(below.end(), step, std::move(both));
    }
  }
  return WithSelf(std::move(below), !is_root && HasSelf(a) && HasSelf(b));
}

// Takes `b` out of `a`; true when nothing is left of `a`.
bool SubtractFrom(const Json& b, bool recursive, bool is_root, Json* a) {
  const bool self_b = !is_root && HasSelf(b);
  if (recursive && self_b) {
    return true;
  }
  const bool was_self = !is_root && HasSelf(*a);
  auto& left = a->get_ref<Json::object_t&>();
  for (const auto& [step, child] : b.get_ref<const Json::object_t&>()) {
    if (step == ".") {
      continue;
    }
    const auto mine = left.find(step);
    if (mine != left.end() && SubtractFrom(child, recursive, false, &mine->second)) {
      left.erase(mine);
    }
  }
  if (self_b) {
    left.erase(".");
    return left.empty();
  }
  if (was_self && left.size() == 1 && left.begin()->first == ".") {
    left.clear();  // a path with nothing below is written {}
  }
  return left.empty() && !was_self;
}

void UnionInto(Json* a, Json b, bool is_root) {
  const bool self = !is_root && (HasSelf(*a) || HasSelf(b));
  auto& left = a->get_ref<Json::object_t&>();
  for (auto& [step, child] : b.get_ref<Json::object_t&>()) {
    if (step == ".") {
      continue;
    }
    const auto at = left.lower_bound(step);
    if (at == left.end() || at->first != step) {
      left.emplace_hint(at, step, std::move(child));
    } else {
      UnionInto(&at->second, std::move(child), false);
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

void Subtract(const FieldSet& b, FieldSet* a) {
  if (!IsEmptySet(*a) && !IsEmptySet(b) && SubtractFrom(b, false, true, a)) {
    *a = nullptr;
  }
}

void SubtractBelow(const FieldSet& b, FieldSet* a) {
  if (!IsEmptySet(*a) && !IsEmptySet(b) && SubtractFrom(b, true, true, a)) {
    *a = nullptr;
  }
}

FieldSet SetDifference(const FieldSet& a, const FieldSet& b) {
  FieldSet out = a;
  Subtract(b, &out);
  return IsEmptySet(out) ? FieldSet() : out;
}

FieldSet SetIntersection(const FieldSet& a, const FieldSet& b) {
  return IsEmptySet(a) || IsEmptySet(b) ? FieldSet() : Intersect(a, b, true);
}

FieldSet SetUnion(FieldSet a, FieldSet b) {
  if (IsEmptySet(a)) {
    return b;
  }
  if (!IsEmptySet(b)) {
    UnionInto(&a, std::move(b), true);
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
