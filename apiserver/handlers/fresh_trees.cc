#include "apiserver/handlers/fresh_trees.h"

#include <nlohmann/json.hpp>

namespace sublet::apiserver {
namespace {

// A tree weighs about ten times its encoding. Readers in this process are a few writes behind.
constexpr std::size_t kTreesMax = 256;
constexpr std::size_t kTreeBytesMax = 1u << 20;
constexpr auto kPause = std::chrono::milliseconds(250);

}  // namespace

FreshTrees::~FreshTrees() {
  TimerQueue::Id timer = 0;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    timer = timer_;
  }
  timers_.Cancel(timer);
}

void FreshTrees::Join(const StoredType& type) {
  MutexLock lock(mutex_);
  ++readers_[type.prefix];
}

void FreshTrees::Leave(const StoredType& type) {
  MutexLock lock(mutex_);
  if (const auto found = readers_.find(type.prefix);
      found != readers_.end() && --found->second == 0) {
    readers_.erase(found);
  }
}

void FreshTrees::Keep(const StoredType& type, std::shared_ptr<const ObjectFacts> facts,
                      kube::Json tree, std::size_t bytes) {
  std::vector<Tree> dropped;
  MutexLock lock(mutex_);
  if (!readers_.contains(type.prefix) || bytes > kTreeBytesMax / 4) {
    return;
  }
  trees_[facts.get()] = {std::make_shared<kube::Json>(std::move(tree)), false};
  order_.push_back({std::move(facts), bytes});
  bytes_ += bytes;
  while (order_.size() > kTreesMax || bytes_ > kTreeBytesMax) {
    DropOldest(&dropped);
  }
  kept_since_timer_ = true;
  if (timer_ == 0) {
    Arm();
  }
}

std::shared_ptr<const kube::Json> FreshTrees::Find(const storage::Value& value) {
  MutexLock lock(mutex_);
  const auto found = trees_.find(static_cast<const ObjectFacts*>(value.attachment.get()));
  if (found == trees_.end() || value.revision_offset == storage::kNoHole) {
    return nullptr;
  }
  const std::string_view revision =
      std::string_view(value.bytes).substr(value.revision_offset, value.revision_length);
  Tree& kept = found->second;
  if (!kept.handed_out) {
    (*kept.tree)["metadata"]["resourceVersion"] = std::string(revision);
    kept.handed_out = true;
  }
  // From here on it is only read. A rollback publishes a state once more, under another revision.
  const kube::Json& tree = *kept.tree;
  return kube::FindString(tree, {"metadata", "resourceVersion"}) == revision ? kept.tree : nullptr;
}

std::size_t FreshTrees::size() const {
  MutexLock lock(mutex_);
  return order_.size();
}

void FreshTrees::DropOldest(std::vector<Tree>* dropped) {
  bytes_ -= order_.front().bytes;
  const auto found = trees_.find(order_.front().facts.get());
  dropped->push_back(std::move(found->second));
  trees_.erase(found);
  order_.pop_front();
}

void FreshTrees::Arm() {
  kept_since_timer_ = false;
  timer_ = timers_.Add(std::chrono::steady_clock::now() + kPause, [this] { Expire(); });
}

void FreshTrees::Expire() {
  std::vector<Tree> dropped;
  MutexLock lock(mutex_);
  timer_ = 0;
  if (closed_) {
    return;
  }
  if (kept_since_timer_) {
    Arm();
    return;
  }
  while (!order_.empty()) {
    DropOldest(&dropped);
  }
}

}  // namespace sublet::apiserver
