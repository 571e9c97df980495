#include "storage/key_tree.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace sublet::storage {

namespace {
constexpr int kFanout = 32;
// A node with fewer is joined with a neighbour when both fit into three quarters of one: the gap
// between joining and splitting keeps one key that comes and goes from doing both each time.
constexpr int kJoinBelow = kFanout / 4;
constexpr int kJoinedMax = kFanout * 3 / 4;

// Searching compares keys by a head: the 8 bytes after what all keys of the node have in common,
// big-endian, kept in the node itself. Following a pointer to an entry and another to its key at each
// step of a binary search would wait for memory about 30 times per look-up; equal heads are rare.
using Head = std::uint64_t;
constexpr std::size_t kPrefixMax = 48;

Head HeadOf(std::string_view key, std::size_t prefix) {
  Head head = 0;
  if (prefix < key.size()) {
    std::memcpy(&head, key.data() + prefix, std::min(sizeof head, key.size() - prefix));
  }
  return __builtin_bswap64(head);
}

// At most kPrefixMax.
std::size_t CommonPrefix(std::string_view a, std::string_view b) {
  const std::size_t most = std::min({a.size(), b.size(), kPrefixMax});
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(most), b.begin()).first -
      a.begin());
}

}  // namespace

struct KeyTree::Node : RefCounted {
  bool leaf = true;
  int count = 0;
  // What the keys of all slots begin with, as far as kept here. (Not every key below the last child of
  // an inner node begins so.)
  std::size_t prefix = 0;
  std::array<char, kPrefixMax> prefix_bytes{};
  std::array<Head, kFanout> heads{};
  virtual std::size_t Size() const = 0;
  virtual const Entry* Min() const = 0;
  // The key in slot i: an entry's, or the smallest below a child.
  virtual std::string_view KeyAt(int i) const = 0;

  // Number of slots with key < `key`; `or_equal`: <= `key`.
  int CountBelow(std::string_view key, bool or_equal) const {
    const int order = key.compare(0, prefix, std::string_view(prefix_bytes.data(), prefix));
    if (order != 0) {
      return order < 0 ? 0 : count;
    }
    const Head head = HeadOf(key, prefix);
    const auto end = heads.begin() + count;
    int below = static_cast<int>(std::lower_bound(heads.begin(), end, head) - heads.begin());
    while (below < count && heads[below] == head &&
           (or_equal ? KeyAt(below) <= key : KeyAt(below) < key)) {
      ++below;
    }
    return below;
  }
  // After slot i got another key, or a new one was put there (`inserted`; count is already raised).
  void SetHead(int i, bool inserted) {
    if (i == 0 || i == count - 1) {
      // With more than one key, a prefix of the same length is the same prefix.
      if (count == 1 || CommonPrefix(KeyAt(0), KeyAt(count - 1)) != prefix) {
        return ResetHeads();
      }
    }
    if (inserted) {
      std::move_backward(heads.begin() + i, heads.begin() + count - 1, heads.begin() + count);
    }
    heads[i] = HeadOf(KeyAt(i), prefix);
  }
  void CopyHeads(const Node& from) {
    count = from.count;
    prefix = from.prefix;
    prefix_bytes = from.prefix_bytes;
    heads = from.heads;
  }
  void EraseHead(int i) {
    std::move(heads.begin() + i + 1, heads.begin() + count + 1, heads.begin() + i);
  }
  void ResetHeads() {
    prefix = count == 0 ? 0 : CommonPrefix(KeyAt(0), KeyAt(count - 1));
    if (prefix > 0) {
      std::memcpy(prefix_bytes.data(), KeyAt(0).data(), prefix);
    }
    for (int i = 0; i < count; ++i) {
      heads[i] = HeadOf(KeyAt(i), prefix);
    }
  }
};

namespace {

using Node = KeyTree::Node;

struct Leaf final : Node {
  std::array<EntryRef, kFanout> entries;

  std::size_t Size() const override { return static_cast<std::size_t>(count); }
  const Entry* Min() const override { return entries[0].get(); }
  std::string_view KeyAt(int i) const override { return entries[i]->key; }
  // Index of the first entry with key >= `key`.
  int LowerBound(std::string_view key) const { return CountBelow(key, false); }
  void InsertAt(int i, EntryRef entry) {
    std::move_backward(entries.begin() + i, entries.begin() + count, entries.begin() + count + 1);
    entries[i] = std::move(entry);
    ++count;
    SetHead(i, true);
  }
  EntryRef EraseAt(int i) {
    EntryRef removed = std::move(entries[i]);
    std::move(entries.begin() + i + 1, entries.begin() + count, entries.begin() + i);
    --count;
    EraseHead(i);
    return removed;
  }
};

struct Inner final : Node {
  Inner() { leaf = false; }
  std::array<Ref<Node>, kFanout> children;
  std::array<const Entry*, kFanout> mins{};
  std::array<std::size_t, kFanout> sizes{};

  std::size_t Size() const override {
    std::size_t total = 0;
    for (int i = 0; i < count; ++i) {
      total += sizes[i];
    }
    return total;
  }
  const Entry* Min() const override { return mins[0]; }
  std::string_view KeyAt(int i) const override { return mins[i]->key; }
  // Index of the child whose range holds `key`.
  int ChildOf(std::string_view key) const {
    return std::max(0, CountBelow(key, true) - 1);
  }
  // After something changed below child i.
  void Refresh(int i) {
    sizes[i] = children[i]->Size();
    const Entry* min = children[i]->Min();
    if (mins[i] != min) {
      mins[i] = min;
      SetHead(i, false);
    }
  }
  void InsertAt(int i, Ref<Node> child) {
    for (int j = count; j > i; --j) {
      children[j] = std::move(children[j - 1]);
      mins[j] = mins[j - 1];
      sizes[j] = sizes[j - 1];
    }
    mins[i] = child->Min();
    sizes[i] = child->Size();
    children[i] = std::move(child);
    ++count;
    SetHead(i, true);
  }
  void EraseAt(int i) {
    for (int j = i; j + 1 < count; ++j) {
      children[j] = std::move(children[j + 1]);
      mins[j] = mins[j + 1];
      sizes[j] = sizes[j + 1];
    }
    --count;
    children[count] = nullptr;
    EraseHead(i);
  }
};

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
