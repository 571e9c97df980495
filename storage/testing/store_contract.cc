#include "storage/testing/store_contract.h"

#include <algorithm>
#include <random>

#include "storage/testing/model_store.h"
#include "storage/testing/test_store.h"

namespace sublet::storage::testing {

namespace {

constexpr int kSteps = 900;

// Drives an engine and the model side by side.
class SideBySide {
 public:
  // `history_bytes_max` small: bytes push the horizons, not only time.
  SideBySide(OpenEngine open, std::uint64_t seed, std::int64_t history_bytes_max)
      : open_(open), history_bytes_max_(history_bytes_max), random_(seed) {
    Reopen();
  }

  void Run() {
    for (int step = 0; step < kSteps && !::testing::Test::HasFailure(); ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      Step();
    }
    CompareAll();
  }

 private:
  struct Watched {
    std::unique_ptr<Subscription> subscription;
    std::string prefix;
    Revision after = 0;
    std::size_t seen = 0;
  };

  int Pick(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  std::string PickKey() {
    static constexpr const char* kKinds[] = {"/pods/", "/pods-x/", "/leases/", "/events/"};
    return kKinds[Pick(4)] + std::to_string(Pick(12));
  }
  std::string PickPrefix() {
    static constexpr const char* kPrefixes[] = {"/", "/pods/", "/pods", "/events/", "/pods/1", ""};
    return kPrefixes[Pick(6)];
  }
  std::int64_t NowUnix() {
    return std::chrono::duration_cast<std::chrono::seconds>(clock_.Now().time_since_epoch())
        .count();
  }

  void Step() {
    switch (Pick(20)) {
      case 0: return CheckList(false);
      case 1: return CheckList(true);
      case 2: return CheckGet();
      case 3: return StartWatch();
      case 4: return DropWatch();
      case 5: return Pick(6) == 0 ? Reopen() : CheckWatches();
      case 6: return Pick(4) == 0 ? Roll() : Advance();
      default: return Transact();
    }
  }

  Op PickOp() {
    Op op;
    op.key = PickKey();
    const int kind = Pick(10);
    op.kind = kind < 6 ? Op::Kind::kPut : kind < 9 ? Op::Kind::kDelete : Op::Kind::kCheck;
    if (op.kind == Op::Kind::kPut) {
      op.bytes = "{" + std::string(static_cast<std::size_t>(Pick(40)), 'x') + "}";
      op.revision_offset = Pick(5) == 0 ? kNoHole : static_cast<std::uint32_t>(1 + Pick(1));
      op.short_history = op.key.starts_with("/leases/") || Pick(20) == 0;
      op.ttl_seconds = op.key.starts_with("/events/") && Pick(2) == 0 ? 1 + Pick(100) : 0;
    }
    const auto record = store_->Get(op.key);
    const Revision stands = record ? record->mod_revision : 0;
    switch (Pick(4)) {
      case 0: op.expected = stands; break;
      case 1: op.expected = stands; break;
      case 2: op.expected = Pick(6) == 0 ? stands + 1 : stands; break;
      default: break;
    }
    return op;
  }

  void Transact() {
    std::vector<Op> ops;
    const int count = Pick(3) == 0 ? 1 + Pick(4) : 1;
    for (int i = 0; i < count; ++i) {
      Op op = PickOp();
      const bool twice = std::any_of(ops.begin(), ops.end(),
                                     [&op](const Op& other) { return other.key == op.key; });
      if (!twice) {
        ops.push_back(std::move(op));
      }
    }
    const ModelStore::Answer wanted = model_.Transact(ops, NowUnix());
    const auto got = store_->TransactSync(std::move(ops));
    ASSERT_TRUE(got.ok()) << got.error().message();
    EXPECT_EQ(got->committed, wanted.committed);
    EXPECT_EQ(got->revision, wanted.revision);
    if (!wanted.committed) {
      EXPECT_EQ(got->conflict, wanted.conflict);
    }
    EXPECT_EQ(store_->CurrentRevision(), model_.revision());
  }

  static void ExpectSame(const Record& got, const ModelStore::Version& wanted) {
    EXPECT_EQ(got.key, wanted.key);
    EXPECT_EQ(got.create_revision, wanted.create_revision);
    EXPECT_EQ(got.mod_revision, wanted.mod_revision);
    EXPECT_EQ(got.value->bytes, wanted.bytes);
    EXPECT_EQ(got.value->revision_offset, wanted.offset);
  }

  // A revision that is sometimes gone, sometimes current.
  Revision PickRevision(Revision oldest) {
    const Revision from = std::max<Revision>(1, oldest - 5);
    return from + Pick(static_cast<int>(model_.revision() - from) + 1);
  }

  void CheckList(bool history) {
    const Revision compacted =
        history ? store_->HistoryRevision() - 1 : store_->CompactedRevision();
    const Revision revision = history || Pick(2) == 0 ? PickRevision(compacted) : 0;
    const std::string prefix = PickPrefix();
    const std::string start = Pick(2) == 0 ? "" : PickKey();
    const auto limit = static_cast<std::size_t>(Pick(2) == 0 ? 0 : 1 + Pick(5));
    SCOPED_TRACE("list '" + prefix + "' after '" + start + "' limit " + std::to_string(limit) +
                 " at " + std::to_string(revision) + (history ? " (history)" : ""));
    const auto got = history ? store_->ListHistory(prefix, start, limit, revision)
                             : store_->List(prefix, start, limit, revision);
    if (revision != 0 && revision <= compacted) {
      ASSERT_FALSE(got.ok());
      EXPECT_EQ(got.error().reason(), Reason::kExpired);
      return;
    }
    ASSERT_TRUE(got.ok()) << got.error().message();
    std::vector<ModelStore::Version> wanted;
    for (const auto& [key, version] : model_.At(revision == 0 ? model_.revision() : revision)) {
      if (key.starts_with(prefix) && key > start && !(history && version.short_history)) {
        wanted.push_back(version);
      }
    }
    EXPECT_EQ(got->revision, revision == 0 ? model_.revision() : revision);
    // A cut history list may be short of keys that turned out to have no history.
    const std::size_t shown = limit == 0 ? wanted.size() : std::min(limit, wanted.size());
    if (history && limit != 0) {
      ASSERT_LE(got->records.size(), shown);
    } else {
      ASSERT_EQ(got->records.size(), shown);
      EXPECT_EQ(got->more, shown < wanted.size());
      EXPECT_EQ(got->remaining, static_cast<std::int64_t>(wanted.size() - shown));
    }
    for (std::size_t i = 0; i < got->records.size(); ++i) {
      ExpectSame(got->records[i], wanted[i]);
    }
    if (revision == 0 && start.empty()) {
      EXPECT_EQ(store_->Count(prefix), wanted.size());
    }
  }

  void CheckGet() {
    const std::string key = PickKey();
    const Revision revision =
        Pick(2) == 0 ? model_.revision() : PickRevision(store_->CompactedRevision());
    const auto got = store_->GetAt(key, revision);
    if (revision <= store_->CompactedRevision()) {
      ASSERT_FALSE(got.ok());
      EXPECT_EQ(got.error().reason(), Reason::kExpired);
      return;
    }
    ASSERT_TRUE(got.ok()) << got.error().message();
    const auto state = model_.At(revision);
    const auto wanted = state.find(key);
    ASSERT_EQ(got->has_value(), wanted != state.end());
    if (*got) {
      ExpectSame(**got, wanted->second);
    }
  }

  void StartWatch() {
    if (watches_.size() >= 6) {
      return;
    }
    Watched watched;
    watched.prefix = PickPrefix();
    watched.after = Pick(3) == 0 ? model_.revision() : PickRevision(store_->CompactedRevision());
    auto subscription = store_->Watch({.prefix = watched.prefix, .after = watched.after});
    if (watched.after <= store_->CompactedRevision()) {
      ASSERT_FALSE(subscription.ok());
      EXPECT_EQ(subscription.error().reason(), Reason::kExpired);
      return;
    }
    ASSERT_TRUE(subscription.ok());
    watched.subscription = std::move(*subscription);
    watches_.push_back(std::move(watched));
  }

  void DropWatch() {
    if (!watches_.empty()) {
      watches_.erase(watches_.begin() + Pick(static_cast<int>(watches_.size())));
    }
  }

  void CheckWatches() {
    for (Watched& watched : watches_) {
      CheckWatch(watched);
    }
    std::erase_if(watches_, [](const Watched& watched) { return !watched.subscription; });
  }

  void CheckWatch(Watched& watched) {
    SCOPED_TRACE("watch '" + watched.prefix + "' after " + std::to_string(watched.after));
    const auto wanted = model_.After(watched.prefix, watched.after);
    const auto max = static_cast<std::size_t>(1 + Pick(20));
    for (;;) {
      std::vector<EventPtr> events;
      const auto pulled = watched.subscription->Pull(events, max);
      if (!pulled.ok()) {
        // Only one that was still catching up may find its past gone.
        EXPECT_EQ(pulled.error().reason(), Reason::kExpired);
        EXPECT_LE(watched.after, store_->CompactedRevision());
        watched.subscription.reset();
        return;
      }
      ASSERT_EQ(*pulled, events.size());
      if (*pulled == 0) {
        break;
      }
      for (const EventPtr& event : events) {
        ASSERT_LT(watched.seen, wanted.size());
        const ModelStore::Change& change = wanted[watched.seen++];
        EXPECT_EQ(event->revision, change.revision);
        EXPECT_EQ(event->type, change.type);
        EXPECT_EQ(event->key, change.key);
        EXPECT_EQ(event->value->bytes, change.bytes);
        ASSERT_EQ(event->previous != nullptr, change.previous.has_value());
        if (change.previous) {
          EXPECT_EQ(event->previous->bytes, *change.previous);
        }
      }
      const Revision next =
          watched.seen < wanted.size() ? wanted[watched.seen].revision : model_.revision() + 1;
      EXPECT_LT(watched.subscription->Progress(), next);
    }
    EXPECT_EQ(watched.seen, wanted.size());
    EXPECT_EQ(watched.subscription->Progress(), model_.revision());
  }

  // Returns when the engine has done what the clock made due: a second durable step starts only
  // after the work between two steps.
  void Settle() {
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(store_->PutLocal({{"settle", "1"}}).ok());
    }
  }

  void Advance() {
    const bool far = Pick(10) == 0;
    clock_.Advance(std::chrono::milliseconds(far ? 90'000 : Pick(4000)));
    model_.Expire(NowUnix());
    Settle();
    EXPECT_EQ(store_->CurrentRevision(), model_.revision());
    EXPECT_LT(store_->CompactedRevision(), store_->CurrentRevision());
    EXPECT_LE(store_->HistoryRevision(), store_->CompactedRevision() + 1);
  }

  void Roll() {
    const Revision to = PickRevision(store_->HistoryRevision());
    const std::string prefix = PickPrefix();
    SCOPED_TRACE("rollback '" + prefix + "' to " + std::to_string(to));
    const Revision before = model_.revision();
    const auto rolled = store_->Rollback(prefix, to);
    if (to < store_->HistoryRevision()) {
      ASSERT_FALSE(rolled.ok());
      EXPECT_EQ(rolled.error().reason(), Reason::kExpired);
      return;
    }
    ASSERT_TRUE(rolled.ok()) << rolled.error().message();
    model_.Rollback(prefix, to);
    EXPECT_EQ(store_->CurrentRevision(), model_.revision());
    EXPECT_EQ(rolled->restored + rolled->deleted,
              static_cast<std::size_t>(model_.revision() - before));
    CompareAll();
  }

  void Reopen() {
    watches_.clear();
    const Revision compacted = store_ ? store_->CompactedRevision() : 0;
    store_.reset();
    StoreOptions options;
    options.directory = folder_.path();
    options.api_horizon = std::chrono::seconds(20);
    options.history_horizon = std::chrono::seconds(120);
    options.history_bytes_max = history_bytes_max_;
    options.clock = &clock_;
    store_ = open_(std::move(options));
    ASSERT_NE(store_, nullptr);
    EXPECT_EQ(store_->CurrentRevision(), model_.revision());
    EXPECT_LE(store_->CompactedRevision(), std::max<Revision>(compacted, 0));
    Settle();
    CompareAll();
  }

  void CompareAll() {
    const auto all = store_->List("", "", 0, 0);
    ASSERT_TRUE(all.ok());
    const auto wanted = model_.At(model_.revision());
    ASSERT_EQ(all->records.size(), wanted.size());
    std::size_t i = 0;
    for (const auto& [key, version] : wanted) {
      ExpectSame(all->records[i++], version);
    }
  }

  const OpenEngine open_;
  const std::int64_t history_bytes_max_;
  std::mt19937_64 random_;
  TempFolder folder_;
  AtomicClock clock_;
  ModelStore model_;
  std::unique_ptr<Store> store_;
  std::vector<Watched> watches_;
};

TEST_P(StoreContract, RandomOperationsAgreeWithTheModel) {
  for (int seed = 1; seed <= 4 * Rounds() && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SideBySide(GetParam(), static_cast<std::uint64_t>(seed), seed % 2 == 0 ? 24 << 10 : 1 << 30)
        .Run();
  }
}

}  // namespace
}  // namespace sublet::storage::testing
