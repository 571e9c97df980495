// KeyTree: the key index, a persistent B+tree from key to its current Entry. Copying a tree is O(1)
// and the copy never changes, so a List walks a consistent snapshot without holding a lock and the
// writer throws a failed batch away by dropping its copy.
//
// Invariants
//  1. A node that more than one tree reaches is never changed: writing copies the path to it. A
//     node with one owner (Ref::IsUnique all the way from the root) is changed in place, so a batch
//     of writes copies each node at most once.
//  2. Inner nodes hold the number of entries below each child (Rank in O(log n)) and the smallest
//     entry below it (search without touching the child).
//  3. Entries ascend by key, bytewise; no node but a lone root leaf is empty.
// Threads: one thread changes a tree; its copies are read by any.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "storage/entry.h"

namespace sublet::storage {

class KeyTree {
 public:
  KeyTree();
  KeyTree(const KeyTree&);
  KeyTree(KeyTree&&) noexcept;
  KeyTree& operator=(KeyTree) noexcept;
  ~KeyTree();

  std::size_t size() const;
  // The entry at `key` or null. Valid while this tree (or another that holds the entry) lives.
  const Entry* Find(std::string_view key) const;
  // Number of entries with a key < `key`.
  std::size_t Rank(std::string_view key) const;
  // Number of entries whose key starts with `prefix`.
  std::size_t CountPrefix(std::string_view prefix) const;

  // Puts `entry` at its key; returns what stood there (null: nothing).
  EntryRef Set(EntryRef entry);
  // Removes `key`; returns what stood there.
  EntryRef Remove(std::string_view key);

  struct Node;

 private:
  friend class KeyCursor;
  Ref<Node> root_;
};

// Walks a tree in key order. Holds the tree alive.
class KeyCursor {
 public:
  // Stands at the first entry with key >= `from`.
  KeyCursor(KeyTree tree, std::string_view from);
  ~KeyCursor();
  // Null at the end.
  const Entry* entry() const { return entry_; }
  void Next();

 private:
  // 32 children a node, at least 2 used: far more entries than memory holds.
  static constexpr int kDepthMax = 24;
  struct Step {
    const KeyTree::Node* node;
    int index;
  };
  void Load();

  KeyTree tree_;
  std::array<Step, kDepthMax> path_{};
  int depth_ = 0;
  const Entry* entry_ = nullptr;
};

// The smallest key greater than every key that starts with `prefix`; "" when there is none.
std::string PrefixEnd(std::string_view prefix);

}  // namespace sublet::storage
