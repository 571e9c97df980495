// The key index against std::map, with random operations and snapshots taken along the way.
#include "storage/key_tree.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace sublet::storage {
namespace {

EntryRef MakeTestEntry(const std::string& key, RowId row) {
  auto entry = MakeRef<Entry>();
  entry->key = key;
  entry->row = row;
  return EntryRef(entry.get());
}

// Keys of several shapes: long common beginnings, ends that differ by a zero byte, prefixes of
// others.
std::string PickKey(std::mt19937& random) {
  const std::string number = std::to_string(random() % 750);
  switch (random() % 4) {
    case 0: return "k" + number;
    case 1: return "/registry/pods/default/some-long-name-" + number;
    case 2: return "/registry/pods/" + std::string(random() % 12, 'x') + number.substr(0, 1);
    default: return "k" + std::string(random() % 20, '\0') + number;
  }
}

using Model = std::map<std::string, RowId>;

void ExpectSame(const KeyTree& tree, const Model& model, std::mt19937& random) {
  ASSERT_EQ(tree.size(), model.size());
  auto wanted = model.begin();
  for (KeyCursor cursor(tree, ""); cursor.entry() != nullptr; cursor.Next(), ++wanted) {
    ASSERT_NE(wanted, model.end());
    ASSERT_EQ(cursor.entry()->key, wanted->first);
    ASSERT_EQ(cursor.entry()->row, wanted->second);
  }
  ASSERT_EQ(wanted, model.end());
  for (int i = 0; i < 20; ++i) {
    const std::string key = PickKey(random);
    const auto bound = model.lower_bound(key);
    EXPECT_EQ(tree.Rank(key), static_cast<std::size_t>(std::distance(model.begin(), bound)));
    KeyCursor cursor(tree, key);
    if (bound == model.end()) {
      EXPECT_EQ(cursor.entry(), nullptr);
    } else {
      ASSERT_NE(cursor.entry(), nullptr);
      EXPECT_EQ(cursor.entry()->key, bound->first);
    }
    const auto count = std::count_if(model.begin(), model.end(), [&key](const auto& item) {
      return item.first.starts_with(key);
    });
    EXPECT_EQ(tree.CountPrefix(key), static_cast<std::size_t>(count));
  }
}

TEST(KeyTree, AgreesWithAMapAndSnapshotsNeverChange) {
  std::mt19937 random(7);
  KeyTree tree;
  Model model;
  std::vector<std::pair<KeyTree, Model>> snapshots;
  for (int step = 0; step < 30'000; ++step) {
    // Grows, then shrinks to nothing, then grows again: every kind of split and join.
    const bool shrink = step / 6000 % 2 == 1;
    const std::string key = PickKey(random);
    if (random() % 10 < (shrink ? 2u : 7u)) {
      const EntryRef replaced = tree.Set(MakeTestEntry(key, step));
      EXPECT_EQ(replaced ? 1u : 0u, model.count(key));
      model[key] = step;
    } else {
      const EntryRef removed = tree.Remove(key);
      EXPECT_EQ(removed ? 1u : 0u, model.erase(key));
    }
    if (step % 1500 == 0) {
      snapshots.emplace_back(tree, model);
    }
    const Entry* found = tree.Find(key);
    ASSERT_EQ(found != nullptr, model.contains(key));
  }
  ExpectSame(tree, model, random);
  for (const auto& [then, wanted] : snapshots) {
    ExpectSame(then, wanted, random);
  }
}

TEST(KeyTree, CanBeEmptiedKeyByKey) {
  KeyTree tree;
  for (int i = 0; i < 5000; ++i) {
    tree.Set(MakeTestEntry("k" + std::to_string(i), i));
  }
  const KeyTree full = tree;
  for (int i = 0; i < 5000; ++i) {
    EXPECT_TRUE(tree.Remove("k" + std::to_string(i)));
  }
  EXPECT_EQ(tree.size(), 0u);
  EXPECT_EQ(KeyCursor(tree, "").entry(), nullptr);
  EXPECT_EQ(full.size(), 5000u);
}

TEST(KeyTree, APrefixEndsWhereItsLastByteGrows) {
  EXPECT_EQ(PrefixEnd("/pods/"), "/pods0");
  EXPECT_EQ(PrefixEnd("a\xff"), "b");
  EXPECT_EQ(PrefixEnd("\xff\xff"), "");
  EXPECT_EQ(PrefixEnd(""), "");
}

}  // namespace
}  // namespace sublet::storage
