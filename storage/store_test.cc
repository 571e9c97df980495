// The store as a whole: what one caller sees. Other aspects have files of their own beside this
// one.
#include <gtest/gtest.h>

#include "storage/testing/test_store.h"

namespace sublet::storage {
namespace {

using testing::Check;
using testing::Delete;
using testing::Must;
using testing::Open;
using testing::Put;
using testing::Shown;
using testing::TempFolder;
using testing::Try;

TEST(Store, ANewStoreIsEmptyAtRevisionOne) {
  TempFolder folder;
  auto store = Open(folder.path());
  EXPECT_EQ(store->CurrentRevision(), 1);
  EXPECT_EQ(store->CompactedRevision(), 0);
  EXPECT_EQ(store->List("", "", 0, 0)->records.size(), 0u);
  EXPECT_FALSE(store->Get("a").has_value());
}

TEST(Store, AWriteIsReadAndSurvivesARestart) {
  TempFolder folder;
  Revision created = 0;
  Revision updated = 0;
  {
    auto store = Open(folder.path());
    created = Must(*store, Put("/a/1", "one", 0));
    updated = Must(*store, Put("/a/1", "two", created));
    EXPECT_EQ(updated, created + 1);
  }
  auto store = Open(folder.path());
  const auto record = store->Get("/a/1");
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->create_revision, created);
  EXPECT_EQ(record->mod_revision, updated);
  EXPECT_EQ(record->value->bytes, Shown("two", updated));
  EXPECT_EQ(
      record->value->bytes.substr(record->value->revision_offset, record->value->revision_length),
      std::to_string(updated));
  EXPECT_EQ(store->CurrentRevision(), updated);
  const auto old = store->GetAt("/a/1", created);
  ASSERT_TRUE(old.ok());
  EXPECT_EQ((*old)->value->bytes, Shown("one", created));
}

TEST(Store, AFailedCompareWritesNothingAndShowsWhatStandsThere) {
  TempFolder folder;
  auto store = Open(folder.path());
  const Revision first = Must(*store, Put("/a", "one", 0));
  std::vector<Op> ops;
  ops.push_back(Put("/b", "new", 0));
  ops.push_back(Put("/a", "two", 0));
  const auto result = store->TransactSync(std::move(ops));
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->committed);
  EXPECT_EQ(result->conflict, 1u);
  EXPECT_EQ(result->revision, first);
  ASSERT_TRUE(result->current.has_value());
  EXPECT_EQ(result->current->mod_revision, first);
  EXPECT_FALSE(store->Get("/b").has_value());
  EXPECT_EQ(store->CurrentRevision(), first);
}

TEST(Store, ADeleteAnswersAndPublishesTheLastStateAtItsOwnRevision) {
  TempFolder folder;
  auto store = Open(folder.path());
  auto watch = store->Watch({.prefix = "/"});
  ASSERT_TRUE(watch.ok());
  const Revision put = Must(*store, Put("/a", "one", 0));
  const auto deleted = Try(*store, Delete("/a", put));
  ASSERT_TRUE(deleted.ok());
  EXPECT_EQ(deleted->values[0]->bytes, Shown("one", put + 1));
  std::vector<EventPtr> events;
  while (events.size() < 2) {
    ASSERT_TRUE((*watch)->Pull(events, 10).ok());
  }
  EXPECT_EQ(events[0]->type, EventType::kCreate);
  EXPECT_EQ(events[1]->type, EventType::kDelete);
  EXPECT_EQ(events[1]->value->bytes, Shown("one", put + 1));
  EXPECT_EQ(events[1]->previous->bytes, Shown("one", put));
  EXPECT_EQ((*watch)->Progress(), put + 1);
}

TEST(Store, OneTransactionOfManyKeysHasOneRevision) {
  TempFolder folder;
  auto store = Open(folder.path());
  std::vector<Op> ops;
  ops.push_back(Put("/a", "one", 0));
  ops.push_back(Put("/b", "two", 0));
  ops.push_back(Check("/c", 0));
  const auto result = store->TransactSync(std::move(ops));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->revision, 2);
  EXPECT_EQ(store->Get("/a")->mod_revision, 2);
  EXPECT_EQ(store->Get("/b")->mod_revision, 2);
  EXPECT_EQ(result->values[2], nullptr);
}

TEST(Store, WhatChangesNothingTakesNoRevision) {
  TempFolder folder;
  auto store = Open(folder.path());
  const auto result = Try(*store, Delete("/none"));
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->committed);
  EXPECT_EQ(result->revision, 1);
  EXPECT_EQ(store->CurrentRevision(), 1);
}

TEST(Store, LocalFactsAreDurableAndOutsideTheRevisions) {
  TempFolder folder;
  {
    auto store = Open(folder.path());
    ASSERT_TRUE(store->PutLocal({{"map/a", "1"}, {"map/b", "2"}, {"other", "3"}}).ok());
    ASSERT_TRUE(store->PutLocal({{"map/a", std::nullopt}}).ok());
    EXPECT_EQ(store->CurrentRevision(), 1);
  }
  auto store = Open(folder.path());
  const auto facts = store->ListLocal("map/");
  ASSERT_TRUE(facts.ok());
  ASSERT_EQ(facts->size(), 1u);
  EXPECT_EQ((*facts)[0].first, "map/b");
  EXPECT_EQ((*facts)[0].second, "2");
}

}  // namespace
}  // namespace sublet::storage
