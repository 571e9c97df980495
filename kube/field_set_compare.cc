// Values to field sets: what a value holds, and what differs between two.
#include <nlohmann/json.hpp>
#include <vector>

#include "kube/field_set.h"
#include "kube/field_set_path.h"

namespace sublet::kube {
namespace {

using fields::AddSelf;
using fields::FieldStep;
using fields::ItemStep;
using fields::Look;
using fields::Shape;
using fields::View;
using schema::Type;

void Attach(std::string step, Json child, Json* node) {
  if (child.is_null()) {
    return;
  }
  if (!node->is_object()) {
    *node = Json::object();
  }
  // Steps come in order but for the items of lists, so the end is the likely place.
  auto& object = node->get_ref<Json::object_t&>();
  if (object.empty() || object.rbegin()->first < step) {
    object.emplace_hint(object.end(), std::move(step), std::move(child));
  } else {
    object.insert_or_assign(std::move(step), std::move(child));
  }
}

// Returns the node for `value`: null when neither it nor anything below is in the set.
Json Fields(Type type, const Json& value) {
  const View view = Look(type, &value);
  Json node;
  if (view.shape == Shape::kScalar || view.atomic) {
    AddSelf(&node);
    return node;
  }
  if (view.shape == Shape::kList) {
    if (!value.is_array()) {
      return node;
    }
    for (const Json& item : value) {
      if (auto step = ItemStep(view, item, nullptr)) {
        Json child = Fields(view.Item(), item);
        AddSelf(&child);
        Attach(std::move(*step), std::move(child), &node);
      }
    }
    return node;
  }
  if (!value.is_object()) {
    return node;
  }
  for (const auto& [name, member] : value.get_ref<const Json::object_t&>()) {
    Json child = Fields(view.Member(name), member);
    const bool empty = member.is_null() || (member.is_object() && member.empty());
    if (empty || !view.IsNamedField(name)) {
      AddSelf(&child);
    }
    Attach(FieldStep(name), std::move(child), &node);
  }
  return node;
}

// The three nodes of one place; null where nothing is.
struct Nodes {
  Json added;
  Json modified;
  Json removed;

  void AttachTo(const std::string& step, Nodes* parent) && {
    Attach(step, std::move(added), &parent->added);
    Attach(step, std::move(modified), &parent->modified);
    Attach(step, std::move(removed), &parent->removed);
  }
};

Nodes Compare(Type type, const Json* before, const Json* after);

void Leaf(const Json* before, const Json* after, Nodes* nodes) {
  if (before == nullptr) {
    AddSelf(&nodes->added);
  } else if (after == nullptr) {
    AddSelf(&nodes->removed);
  } else if (*before != *after) {
    AddSelf(&nodes->modified);
  }
}

void Members(const View& view, const Json* before, const Json* after, Nodes* nodes) {
  static const Json::object_t kNone;
  const auto& left = before != nullptr ? before->get_ref<const Json::object_t&>() : kNone;
  const auto& right = after != nullptr ? after->get_ref<const Json::object_t&>() : kNone;
  auto i = left.begin();
  auto j = right.begin();
  while (i != left.end() || j != right.end()) {
    const int order = i == left.end() ? 1 : j == right.end() ? -1 : i->first.compare(j->first);
    const Json* a = order <= 0 ? &i->second : nullptr;
    const Json* b = order >= 0 ? &j->second : nullptr;
    const std::string& name = order <= 0 ? i->first : j->first;
    // Equal subtrees are the usual case and cost one comparison.
    if (a == nullptr || b == nullptr || *a != *b) {
      Compare(view.Member(name), a, b).AttachTo(FieldStep(name), nodes);
    }
    i = order <= 0 ? std::next(i) : i;
    j = order >= 0 ? std::next(j) : j;
  }
}

struct Group {
  std::string step;
  std::vector<const Json*> before;
  std::vector<const Json*> after;
};

std::vector<Group> GroupItems(const View& view, const Json* before, const Json* after) {
  std::vector<Group> groups;
  const auto put = [&](const Json* list, bool is_before) {
    if (list == nullptr) {
      return;
    }
    for (const Json& item : *list) {
      auto step = ItemStep(view, item, nullptr);
      if (!step) {
        continue;
      }
      auto at = groups.begin();
      while (at != groups.end() && at->step != *step) {
        ++at;
      }
      if (at == groups.end()) {
        groups.push_back({std::move(*step), {}, {}});
        at = std::prev(groups.end());
      }
      (is_before ? at->before : at->after).push_back(&item);
    }
  };
  put(before, true);
  put(after, false);
  return groups;
}

bool SameItems(const Group& group) {
  if (group.before.size() != group.after.size()) {
    return false;
  }
  for (std::size_t i = 0; i < group.before.size(); ++i) {
    if (*group.before[i] != *group.after[i]) {
      return false;
    }
  }
  return true;
}

void Items(const View& view, const Json* before, const Json* after, Nodes* nodes) {
  for (const Group& group : GroupItems(view, before, after)) {
    if (SameItems(group)) {
      continue;
    }
    const std::size_t left = group.before.size();
    const std::size_t right = group.after.size();
    Nodes item;
    if (left <= 1 && right <= 1) {
      item = Compare(view.Item(), left == 1 ? group.before[0] : nullptr,
                     right == 1 ? group.after[0] : nullptr);
    } else if (left >= 2 && right >= 2) {
      AddSelf(&item.modified);
    } else if (left >= 2) {  // several with one key became one or none
      if (right == 1) {
        item = Compare(view.Item(), nullptr, group.after[0]);
      }
      AddSelf(&item.removed);
    } else {
      if (left == 1) {
        item = Compare(view.Item(), group.before[0], nullptr);
      }
      AddSelf(&item.added);
    }
    std::move(item).AttachTo(group.step, nodes);
  }
}

// Compares in one shape; true when the place is a leaf.
bool CompareAs(const View& view, const Json* before, const Json* after, Nodes* nodes) {
  if (view.shape == Shape::kScalar) {
    Leaf(before, after, nodes);
    return true;
  }
  const auto usable = [&](const Json* value) {
    return value != nullptr && (view.shape == Shape::kMap ? value->is_object() : value->is_array())
               ? value
               : nullptr;
  };
  const Json* left = usable(before);
  const Json* right = usable(after);
  const bool both_empty =
      (left == nullptr || left->empty()) && (right == nullptr || right->empty());
  if (view.atomic || both_empty) {
    Leaf(before, after, nodes);
    return true;
  }
  if (view.shape == Shape::kMap) {
    Members(view, left, right, nodes);
  } else {
    Items(view, left, right, nodes);
  }
  return false;
}

Nodes Compare(Type type, const Json* before, const Json* after) {
  Nodes nodes;
  const View left = Look(type, before);
  const View right = Look(type, after);
  bool leaf = false;
  if (after == nullptr) {
    leaf = CompareAs(left, before, after, &nodes);
  } else if (before == nullptr || (left.shape == right.shape && left.atomic == right.atomic)) {
    leaf = CompareAs(right, before, after, &nodes);
  } else {
    // A deduced value that changed its shape: what the old shape lost, then the new one. The second
    // walk adds to the same sets.
    (void)CompareAs(left, before, after, &nodes);
    Nodes second;
    leaf = CompareAs(right, before, after, &second);
    nodes.added = SetUnion(std::move(nodes.added), std::move(second.added));
    nodes.removed = SetUnion(std::move(nodes.removed), std::move(second.removed));
    if (!second.modified.is_null()) {
      AddSelf(&nodes.modified);
    }
  }
  if (!leaf) {
    if (before == nullptr) {
      AddSelf(&nodes.added);
    } else if (after == nullptr) {
      AddSelf(&nodes.removed);
    }
  }
  return nodes;
}

}  // namespace

FieldSet FieldsOf(Type type, const Json& value) { return Fields(type, value); }

FieldChanges CompareTyped(Type type, const Json& before, const Json& after) {
  Nodes nodes = Compare(type, &before, &after);
  return {std::move(nodes.added), std::move(nodes.modified), std::move(nodes.removed)};
}

}  // namespace sublet::kube
