// The nodes of KeyTree: arrays of entries or children in key order, and the search in them. Private
// to key_tree.cc. Threads: a node is changed by the one thread that owns it alone, read by any.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "storage/key_tree.h"

namespace sublet::storage {

inline constexpr int kFanout = 32;

// Searching compares keys by a head: the 8 bytes after what all keys of the node have in common,
// big-endian, kept in the node itself. Following a pointer to an entry and another to its key at
// each step of a binary search would wait for memory about 30 times per look-up; equal heads are
// rare.
using Head = std::uint64_t;
inline constexpr std::size_t kPrefixMax = 48;

inline Head HeadOf(std::string_view key, std::size_t prefix) {
  Head head = 0;
  if (prefix < key.size()) {
    std::memcpy(&head, key.data() + prefix, std::min(sizeof head, key.size() - prefix));
  }
  return __builtin_bswap64(head);
}

// At most kPrefixMax.
inline std::size_t CommonPrefix(std::string_view a, std::string_view b) {
  const std::size_t most = std::min({a.size(), b.size(), kPrefixMax});
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(most), b.begin()).first -
      a.begin());
}

struct KeyTree::Node : RefCounted {
  bool leaf = true;
  int count = 0;
  // What the keys of all slots begin with, as far as kept here. (Not every key below the last child
  // of an inner node begins so.)
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

struct Leaf final : KeyTree::Node {
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

struct Inner final : KeyTree::Node {
  using Node = KeyTree::Node;
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
  int ChildOf(std::string_view key) const { return std::max(0, CountBelow(key, true) - 1); }
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

}  // namespace sublet::storage
