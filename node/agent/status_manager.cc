#include "node/agent/status_manager.h"

#include <pthread.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"

namespace sublet::node {
namespace {

using kube::Json;

constexpr std::chrono::milliseconds kBackoffFirst{200};
constexpr std::chrono::milliseconds kBackoffMost{30000};

client::Target PodTarget(const PodPlan& plan, const char* subresource) {
  client::Target target;
  target.resource = {"", "v1", "pods"};
  target.namespace_name = plan.namespace_name;
  target.name = plan.name;
  target.subresource = subresource;
  return target;
}

}  // namespace

void StatusManager::Start() {
  for (int i = 0; i < count_; ++i) {
    threads_.emplace_back([this, i] {
      ::pthread_setname_np(::pthread_self(), ("status-" + std::to_string(i)).c_str());
      Run();
    });
  }
}

void StatusManager::Stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  changed_.NotifyAll();
  for (std::thread& thread : threads_) {
    thread.join();
  }
  threads_.clear();
}

void StatusManager::Put(std::shared_ptr<const PodPlan> plan, Json status) {
  {
    MutexLock lock(mutex_);
    Entry& entry = entries_[plan->uid];
    entry.plan = std::move(plan);
    entry.status = std::make_shared<const Json>(std::move(status));
  }
  changed_.NotifyOne();
}

void StatusManager::Finalize(std::shared_ptr<const PodPlan> plan) {
  {
    MutexLock lock(mutex_);
    Entry& entry = entries_[plan->uid];
    entry.plan = std::move(plan);
    entry.finalize = true;
  }
  changed_.NotifyOne();
}

std::size_t StatusManager::waiting() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

void StatusManager::Run() {
  for (;;) {
    std::string uid;
    std::shared_ptr<const PodPlan> plan;
    std::shared_ptr<const Json> status;
    bool finalize = false;
    {
      MutexLock lock(mutex_);
      while (plan == nullptr) {
        if (stopped_) {
          return;
        }
        const MonotonicTime now = std::chrono::steady_clock::now();
        MonotonicTime next = MonotonicTime::max();
        for (auto& [key, entry] : entries_) {
          if (entry.is_busy) {
            continue;
          }
          if (entry.not_before <= now) {
            uid = key;
            plan = entry.plan;
            status = std::move(entry.status);
            entry.status = nullptr;
            finalize = entry.finalize;
            entry.is_busy = true;
            break;
          }
          next = std::min(next, entry.not_before);
        }
        if (plan == nullptr && next == MonotonicTime::max()) {
          changed_.Wait(mutex_);
        } else if (plan == nullptr) {
          changed_.WaitUntil(mutex_, next);
        }
      }
    }
    const auto sent = Send(*plan, status.get(), finalize);
    bool more = false;
    {
      MutexLock lock(mutex_);
      Entry& entry = entries_[uid];
      entry.is_busy = false;
      if (sent.ok()) {
        entry.backoff = std::chrono::milliseconds(0);
        more = entry.status != nullptr || entry.finalize != finalize;
        if (!more) {
          entries_.erase(uid);
        }
      } else {
        if (entry.status == nullptr) {
          entry.status = status;
        }
        entry.backoff = std::clamp(2 * entry.backoff, kBackoffFirst, kBackoffMost);
        entry.not_before = std::chrono::steady_clock::now() + entry.backoff;
        more = true;
      }
    }
    if (!sent.ok()) {
      log::Warn("cannot write a pod's status", {{"pod", plan->Text()}, {"error", sent.error()}});
    }
    if (more) {
      changed_.NotifyOne();
    }
  }
}

Result<void> StatusManager::Send(const PodPlan& plan, const Json* status, bool finalize) {
  if (status != nullptr) {
    Json patch = {{"metadata", {{"uid", plan.uid}}}, {"status", *status}};
    // Members that a former status may have had and this one has not.
    for (const char* member : {"reason", "message"}) {
      if (!patch["status"].contains(member)) {
        patch["status"][member] = nullptr;
      }
    }
    if (patch["status"].contains("conditions")) {
      for (Json& condition : patch["status"]["conditions"]) {
        for (const char* member : {"reason", "message"}) {
          if (!condition.contains(member)) {
            condition[member] = nullptr;
          }
        }
      }
    }
    auto patched =
        client_.Patch(PodTarget(plan, "status"), client::PatchType::kStrategicMerge, patch);
    if (!patched.ok()) {
      const Status& error = patched.error();
      // Gone, or another pod of the same name: nobody is interested any more.
      if (error.Is(Reason::kNotFound) || error.Is(Reason::kConflict) ||
          error.Is(Reason::kInvalid)) {
        if (error.Is(Reason::kInvalid)) {
          log::Error("the API server refuses a pod's status",
                     {{"pod", plan.Text()}, {"error", error}});
        }
        if (!finalize) {
          return {};
        }
      } else {
        return std::move(patched).error();
      }
    }
  }
  if (finalize) {
    client::DeleteOptions options;
    options.grace_period_seconds = 0;
    options.uid = plan.uid;
    auto deleted = client_.Delete(PodTarget(plan, ""), options);
    if (!deleted.ok() && !deleted.error().Is(Reason::kNotFound) &&
        !deleted.error().Is(Reason::kConflict)) {
      return std::move(deleted).error();
    }
  }
  return {};
}

}  // namespace sublet::node
