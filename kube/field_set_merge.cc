// Values by field sets: merging an applied object, removing fields, and what may be applied.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <vector>

#include "kube/field_error.h"
#include "kube/field_set.h"
#include "kube/field_set_path.h"
#include "kube/go_print.h"

namespace sublet::kube {
namespace {

using fields::FieldStep;
using fields::ItemStep;
using fields::Look;
using fields::PrintStep;
using fields::Shape;
using fields::View;
using schema::Type;
using schema::ValueKind;

using Merged = std::optional<Json>;

Merged Merge(Type type, const Json* base, const Json* over);

Merged MergeMembers(const View& view, const Json* base, const Json* over) {
  static const Json::object_t kNone;
  const auto& left = base != nullptr ? base->get_ref<const Json::object_t&>() : kNone;
  const auto& right = over != nullptr ? over->get_ref<const Json::object_t&>() : kNone;
  Json::object_t out;
  auto i = left.begin();
  auto j = right.begin();
  while (i != left.end() || j != right.end()) {
    const int order = i == left.end() ? 1 : j == right.end() ? -1 : i->first.compare(j->first);
    const std::string& name = order <= 0 ? i->first : j->first;
    Merged merged = Merge(view.Member(name), order <= 0 ? &i->second : nullptr,
                          order >= 0 ? &j->second : nullptr);
    if (merged) {
      out.emplace_hint(out.end(), name, std::move(*merged));
    }
    i = order <= 0 ? std::next(i) : i;
    j = order >= 0 ? std::next(j) : j;
  }
  if (out.empty()) {
    return std::nullopt;
  }
  return Json(std::move(out));
}

struct Indexed {
  std::vector<std::string> steps;                        // in order, duplicates included
  std::vector<const Json*> items;                        // beside them
  std::unordered_map<std::string, const Json*> by_step;  // nullptr value: stands twice

  Indexed(const View& view, const Json* list) {
    if (list == nullptr) {
      return;
    }
    for (const Json& item : *list) {
      auto step = ItemStep(view, item, nullptr);
      if (!step) {
        continue;
      }
      const auto [at, inserted] = by_step.try_emplace(*step, &item);
      if (!inserted) {
        at->second = nullptr;
      }
      steps.push_back(std::move(*step));
      items.push_back(&item);
    }
  }
  bool Has(const std::string& step) const { return by_step.contains(step); }
  const Json* Get(const std::string& step) const {
    const auto at = by_step.find(step);
    return at == by_step.end() ? nullptr : at->second;
  }
};

// Keeps the order of the applied list for what it names and the live order for the rest: live-only
// items stay before the shared item that follows them.
Merged MergeItems(const View& view, const Json* base, const Json* over) {
  const Indexed left(view, base);
  const Indexed right(view, over);
  std::vector<const std::string*> shared;
  for (const std::string& step : right.steps) {
    if (left.Has(step)) {
      shared.push_back(&step);
    }
  }
  std::size_t next_shared = 0;
  const auto next = [&]() -> const std::string* {
    return next_shared < shared.size() ? shared[next_shared] : nullptr;
  };
  std::unordered_map<std::string_view, bool> done;
  Json::array_t out;
  const auto put = [&](const Json* a, const Json* b) {
    if (Merged merged = Merge(view.Item(), a, b)) {
      out.push_back(std::move(*merged));
    }
  };
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < left.steps.size() || j < right.steps.size()) {
    if (i < left.steps.size() && j < right.steps.size()) {
      const std::string& step = left.steps[i];
      if (step == right.steps[j]) {
        done[step] = true;
        put(left.Get(step), right.Get(step));
        ++i;
        ++j;
        ++next_shared;
        continue;
      }
      if (right.Has(step) && next() != nullptr && *next() != step) {
        ++i;
        continue;
      }
    }
    if (i < left.steps.size()) {
      const std::string& step = left.steps[i];
      if (!right.Has(step)) {
        put(left.items[i], nullptr);
        ++i;
        continue;
      }
      if (done.contains(step)) {
        ++i;
      }
    }
    if (j < right.steps.size()) {
      const std::string& step = right.steps[j];
      done[step] = true;
      put(left.Get(step), right.Get(step));
      ++j;
      if (next() != nullptr && *next() == step) {
        ++next_shared;
      }
    }
  }
  if (out.empty()) {
    return std::nullopt;
  }
  return Json(std::move(out));
}

Merged Merge(Type type, const Json* base, const Json* over) {
  if (base == nullptr && over == nullptr) {
    return std::nullopt;
  }
  const View view = Look(type, over != nullptr ? over : base);
  const auto keep = [&]() -> Merged { return over != nullptr ? *over : *base; };
  if (view.shape == Shape::kScalar || view.atomic) {
    return keep();
  }
  const auto usable = [&](const Json* value) {
    return value != nullptr && (view.shape == Shape::kMap ? value->is_object() : value->is_array())
               ? value
               : nullptr;
  };
  const Json* left = usable(base);
  const Json* right = usable(over);
  if ((left == nullptr || left->empty()) && (right == nullptr || right->empty())) {
    return keep();
  }
  return view.shape == Shape::kMap ? MergeMembers(view, left, right)
                                   : MergeItems(view, left, right);
}

Merged Remove(Type type, const Json& value, const Json& set);

Merged RemoveItems(const View& view, const Json& value, const Json& set) {
  Json::array_t out;
  for (const Json& item : value) {
    const auto step = ItemStep(view, item, nullptr);
    const Json* at = step ? Find(set, {*step}) : nullptr;
    if (at == nullptr) {
      out.push_back(item);
      continue;
    }
    if (at->empty() || at->contains(".")) {
      continue;
    }
    if (Merged left = Remove(view.Item(), item, *at)) {
      out.push_back(std::move(*left));
    } else {
      out.push_back(nullptr);
    }
  }
  if (out.empty()) {
    return std::nullopt;
  }
  return Json(std::move(out));
}

Merged Remove(Type type, const Json& value, const Json& set) {
  const View view = Look(type, &value);
  if (view.shape == Shape::kScalar) {
    return value;
  }
  // What Go returns for containers that are empty, atomic or of the wrong kind: nothing at all.
  const bool usable = view.shape == Shape::kMap ? value.is_object() : value.is_array();
  if (!usable || value.empty() || view.atomic) {
    return std::nullopt;
  }
  if (view.shape == Shape::kList) {
    return RemoveItems(view, value, set);
  }
  Json::object_t out;
  for (const auto& [name, member] : value.get_ref<const Json::object_t&>()) {
    const Json* at = Find(set, {FieldStep(name)});
    if (at == nullptr) {
      out.emplace_hint(out.end(), name, member);
      continue;
    }
    if (at->empty() || at->contains(".")) {
      continue;
    }
    Merged left = Remove(view.Member(name), member, *at);
    out.emplace_hint(out.end(), name, left ? std::move(*left) : Json(nullptr));
  }
  if (out.empty()) {
    return std::nullopt;
  }
  return Json(std::move(out));
}

class Checker {
 public:
  void Check(Type type, const Json& value, const std::string& path) {
    const View view = Look(type, &value);
    if (value.is_null()) {
      return;
    }
    if (view.shape == Shape::kScalar) {
      return Scalar(type, value, path);
    }
    if (view.shape == Shape::kMap) {
      if (!value.is_object()) {
        return Add(path, "expected map, got " + Shown(value));
      }
      return Map(view, value, path);
    }
    if (!value.is_array()) {
      return Add(path, "expected list, got " + Shown(value));
    }
    List(view, value, path);
  }

  std::string Text() const {
    if (problems_.size() == 1) {
      return problems_[0];
    }
    std::string out = "errors:";
    for (const std::string& problem : problems_) {
      out += "\n  " + problem;
    }
    return out;
  }
  bool ok() const { return problems_.empty(); }

 private:
  static std::string Shown(const Json& value) {
    return "&{" + (value.is_string() ? value.get<std::string>() : GoPrint(value)) + "}";
  }
  void Add(const std::string& path, const std::string& message) {
    problems_.push_back(path.empty() ? message : path + ": " + message);
  }

  void Scalar(Type type, const Json& value, const std::string& path) {
    if (!type) {
      return;
    }
    const bool scalar = !value.is_structured();
    switch (type.kind()) {
      case ValueKind::kString:
      case ValueKind::kBytes:
        if (!value.is_string()) {
          Add(path, "expected string, got &value.valueUnstructured{Value:" + GoPrint(value) + "}");
        }
        return;
      case ValueKind::kInt32:
      case ValueKind::kInt64:
      case ValueKind::kFloat:
        if (!value.is_number()) {
          Add(path, "expected numeric (int or float), got " + GoTypeName(value));
        }
        return;
      case ValueKind::kBool:
        if (!value.is_boolean()) {
          Add(path, "expected boolean, got " + Shown(value));
        }
        return;
      default:
        if (!scalar) {
          Add(path, "expected any scalar, got " + Shown(value));
        }
    }
  }

  void Map(const View& view, const Json& value, const std::string& path) {
    const bool open = !view.type || view.type.kind() == ValueKind::kMap ||
                      view.type.Has(schema::kPreserveUnknown) || view.type.Has(schema::kEmbedded);
    for (const auto& [name, member] : value.items()) {
      if (!open && !view.IsNamedField(name)) {
        Add(path + "." + name, "field not declared in schema");
        return;  // upstream stops at the first one of a level
      }
      Check(view.Member(name), member, path + "." + name);
    }
  }

  void List(const View& view, const Json& value, const std::string& path) {
    std::vector<std::string> seen;
    for (std::size_t i = 0; i < value.size(); ++i) {
      std::string here = path + "[" + std::to_string(i) + "]";
      if (!view.atomic) {
        std::string problem;
        const auto step = ItemStep(view, value[i], &problem);
        if (!step) {
          return Add(path, "element " + std::to_string(i) + ": " + problem);
        }
        if (std::find(seen.begin(), seen.end(), *step) != seen.end()) {
          Add(path, "duplicate entries for key " + PrintStep(*step));
        }
        seen.push_back(*step);
        here = path + PrintStep(*step);
      }
      Check(view.Item(), value[i], here);
    }
  }

  std::vector<std::string> problems_;
};

}  // namespace

Json MergeTyped(Type type, const Json& base, const Json& over) {
  return Merge(type, &base, &over).value_or(Json(nullptr));
}

Json RemoveFields(Type type, const Json& value, const FieldSet& set) {
  if (IsEmptySet(set)) {
    return value;
  }
  return Remove(type, value, set).value_or(Json(nullptr));
}

Result<void> CheckApplied(Type type, const Json& value) {
  Checker checker;
  checker.Check(type, value, "");
  if (!checker.ok()) {
    return {Status(Reason::kUnknown, 500, checker.Text())};
  }
  return Ok();
}

}  // namespace sublet::kube
