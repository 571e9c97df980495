#include "storage/key_tree.h"

#include <algorithm>

#include "base/check.h"
#include "storage/key_tree_node.h"

namespace sublet::storage {

namespace {
// A node with fewer is joined with a neighbour when both fit into three quarters of one: the gap
// between joining and splitting keeps one key that comes and goes from doing both each time.
constexpr int kJoinBelow = kFanout / 4;
constexpr int kJoinedMax = kFanout * 3 / 4;

using Node = KeyTree::Node;

Leaf& AsLeaf(Node& node) { return static_cast<Leaf&>(node); }
Inner& AsInner(Node& node) { return static_cast<Inner&>(node); }
const Leaf& AsLeaf(const Node& node) { return static_cast<const Leaf&>(node); }
const Inner& AsInner(const Node& node) { return static_cast<const Inner&>(node); }

// Makes `slot` point to a node that only it owns, and returns it.
Node& Own(Ref<Node>& slot) {
  if (!slot.IsUnique()) {
    if (slot->leaf) {
      auto copy = MakeRef<Leaf>();
      copy->CopyHeads(*slot);
      copy->entries = AsLeaf(*slot).entries;
      slot = Ref<Node>(copy.get());
    } else {
      const Inner& from = AsInner(*slot);
      auto copy = MakeRef<Inner>();
      copy->CopyHeads(from);
      copy->children = from.children;
      copy->mins = from.mins;
      copy->sizes = from.sizes;
      slot = Ref<Node>(copy.get());
    }
  }
  return *slot;
}

// Moves the upper half of a full node into a new one.
Ref<Node> SplitLeaf(Leaf& leaf) {
  auto right = MakeRef<Leaf>();
  const int keep = leaf.count / 2;
  for (int i = keep; i < leaf.count; ++i) {
    right->entries[i - keep] = std::move(leaf.entries[i]);
  }
  right->count = leaf.count - keep;
  right->ResetHeads();
  leaf.count = keep;
  leaf.ResetHeads();
  return Ref<Node>(right.get());
}

Ref<Node> SplitInner(Inner& inner) {
  auto right = MakeRef<Inner>();
  const int keep = inner.count / 2;
  for (int i = keep; i < inner.count; ++i) {
    right->children[i - keep] = std::move(inner.children[i]);
    right->mins[i - keep] = inner.mins[i];
    right->sizes[i - keep] = inner.sizes[i];
  }
  right->count = inner.count - keep;
  right->ResetHeads();
  inner.count = keep;
  inner.ResetHeads();
  return Ref<Node>(right.get());
}

// Puts `entry` below `slot`. `split` receives a new right neighbour when the node overflowed.
EntryRef SetBelow(Ref<Node>& slot, EntryRef entry, Ref<Node>& split) {
  Node& node = Own(slot);
  if (node.leaf) {
    Leaf* leaf = &AsLeaf(node);
    int i = leaf->LowerBound(entry->key);
    if (i < leaf->count && leaf->entries[i]->key == entry->key) {
      std::swap(leaf->entries[i], entry);
      return entry;
    }
    if (leaf->count == kFanout) {
      split = SplitLeaf(*leaf);
      if (i > leaf->count) {
        i -= leaf->count;
        leaf = &AsLeaf(*split);
      }
    }
    leaf->InsertAt(i, std::move(entry));
    return nullptr;
  }
  Inner& inner = AsInner(node);
  const int i = inner.ChildOf(entry->key);
  Ref<Node> child_split;
  EntryRef replaced = SetBelow(inner.children[i], std::move(entry), child_split);
  inner.Refresh(i);
  if (child_split) {
    if (inner.count < kFanout) {
      inner.InsertAt(i + 1, std::move(child_split));
    } else {
      split = SplitInner(inner);
      Inner& half = i + 1 > inner.count ? AsInner(*split) : inner;
      half.InsertAt(i + 1 > inner.count ? i + 1 - inner.count : i + 1, std::move(child_split));
    }
  }
  return replaced;
}

// Joins children i and i+1 of `inner` when they fit well into one node.
void Join(Inner& inner, int i) {
  if (i < 0 || i + 1 >= inner.count ||
      inner.children[i]->count + inner.children[i + 1]->count > kJoinedMax) {
    return;
  }
  Node& left = Own(inner.children[i]);
  Node& right = Own(inner.children[i + 1]);
  for (int j = 0; j < right.count; ++j) {
    if (left.leaf) {
      AsLeaf(left).entries[left.count + j] = std::move(AsLeaf(right).entries[j]);
    } else {
      AsInner(left).children[left.count + j] = std::move(AsInner(right).children[j]);
      AsInner(left).mins[left.count + j] = AsInner(right).mins[j];
      AsInner(left).sizes[left.count + j] = AsInner(right).sizes[j];
    }
  }
  left.count += right.count;
  left.ResetHeads();
  right.count = 0;
  inner.EraseAt(i + 1);
  inner.Refresh(i);
}

// Removes `key`, which is there, from below `slot`. The node may end up empty.
EntryRef RemoveBelow(Ref<Node>& slot, std::string_view key) {
  Node& node = Own(slot);
  if (node.leaf) {
    Leaf& leaf = AsLeaf(node);
    return leaf.EraseAt(leaf.LowerBound(key));
  }
  Inner& inner = AsInner(node);
  const int i = inner.ChildOf(key);
  EntryRef removed = RemoveBelow(inner.children[i], key);
  if (inner.children[i]->count == 0) {
    inner.EraseAt(i);
    return removed;
  }
  inner.Refresh(i);
  if (inner.children[i]->count < kJoinBelow) {
    Join(inner, i + 1 < inner.count ? i : i - 1);
  }
  return removed;
}

}  // namespace

KeyTree::KeyTree() = default;
KeyTree::KeyTree(const KeyTree&) = default;
KeyTree::KeyTree(KeyTree&&) noexcept = default;
KeyTree& KeyTree::operator=(KeyTree other) noexcept {
  root_ = std::move(other.root_);
  return *this;
}
KeyTree::~KeyTree() = default;

std::size_t KeyTree::size() const { return root_ ? root_->Size() : 0; }

const Entry* KeyTree::Find(std::string_view key) const {
  const Node* node = root_.get();
  if (node == nullptr) {
    return nullptr;
  }
  while (!node->leaf) {
    const Inner& inner = AsInner(*node);
    node = inner.children[inner.ChildOf(key)].get();
  }
  const Leaf& leaf = AsLeaf(*node);
  const int i = leaf.CountBelow(key, false);
  return i < leaf.count && leaf.entries[i]->key == key ? leaf.entries[i].get() : nullptr;
}

std::size_t KeyTree::Rank(std::string_view key) const {
  std::size_t rank = 0;
  const Node* node = root_.get();
  if (node == nullptr) {
    return 0;
  }
  while (!node->leaf) {
    const Inner& inner = AsInner(*node);
    const int child = inner.ChildOf(key);
    for (int i = 0; i < child; ++i) {
      rank += inner.sizes[i];
    }
    node = inner.children[child].get();
  }
  return rank + static_cast<std::size_t>(AsLeaf(*node).LowerBound(key));
}

std::size_t KeyTree::CountPrefix(std::string_view prefix) const {
  const std::string end = PrefixEnd(prefix);
  return (end.empty() ? size() : Rank(end)) - Rank(prefix);
}

EntryRef KeyTree::Set(EntryRef entry) {
  if (!root_) {
    root_ = Ref<Node>(MakeRef<Leaf>().get());
  }
  Ref<Node> split;
  EntryRef replaced = SetBelow(root_, std::move(entry), split);
  if (split) {
    auto root = MakeRef<Inner>();
    root->InsertAt(0, std::move(root_));
    root->InsertAt(1, std::move(split));
    root_ = Ref<Node>(root.get());
  }
  return replaced;
}

EntryRef KeyTree::Remove(std::string_view key) {
  if (Find(key) == nullptr) {
    return nullptr;
  }
  EntryRef removed = RemoveBelow(root_, key);
  while (root_ && !root_->leaf && root_->count == 1) {
    Ref<Node> child = AsInner(*root_).children[0];
    root_ = std::move(child);
  }
  if (root_->count == 0) {
    root_ = nullptr;
  }
  return removed;
}

KeyCursor::KeyCursor(KeyTree tree, std::string_view from) : tree_(std::move(tree)) {
  const Node* node = tree_.root_.get();
  if (node == nullptr) {
    return;
  }
  while (!node->leaf) {
    SUBLET_CHECK(depth_ + 1 < kDepthMax);
    const Inner& inner = AsInner(*node);
    const int child = inner.ChildOf(from);
    path_[depth_++] = {node, child};
    node = inner.children[child].get();
  }
  path_[depth_++] = {node, AsLeaf(*node).LowerBound(from)};
  Load();
}

KeyCursor::~KeyCursor() = default;

void KeyCursor::Next() {
  ++path_[depth_ - 1].index;
  Load();
}

// Settles on the entry the path points at, moving to the next leaf at the end of one.
void KeyCursor::Load() {
  while (depth_ > 0) {
    const Step step = path_[depth_ - 1];
    if (step.index >= step.node->count) {
      if (--depth_ > 0) {
        ++path_[depth_ - 1].index;
      }
      continue;
    }
    if (step.node->leaf) {
      entry_ = AsLeaf(*step.node).entries[step.index].get();
      return;
    }
    path_[depth_++] = {AsInner(*step.node).children[step.index].get(), 0};
  }
  entry_ = nullptr;
}

std::string PrefixEnd(std::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && static_cast<unsigned char>(end.back()) == 0xff) {
    end.pop_back();
  }
  if (!end.empty()) {
    end.back() = static_cast<char>(static_cast<unsigned char>(end.back()) + 1);
  }
  return end;
}

}  // namespace sublet::storage
