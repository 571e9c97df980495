#include "client/manager.h"

#include <pthread.h>

#include <algorithm>

#include "base/log.h"

namespace sublet::client {
namespace {

bool IsQuiet(const Status& error) {
  // NotFound: the object went while it was worked on.
  return error.Is(Reason::kConflict) || error.Is(Reason::kAlreadyExists) ||
         error.Is(Reason::kNotFound);
}

}  // namespace

struct Manager::Controller {
  Controller(ControllerOptions o, const Clock& clock) : options(std::move(o)), queue(clock) {}
  ControllerOptions options;
  WorkQueue queue;
  // Under the manager's mutex.
  int working = 0;
  bool ready = false;  // its informers have synced

  bool Ready() {
    ready = ready || std::all_of(options.needs.begin(), options.needs.end(),
                                 [](const Informer* informer) { return informer->synced(); });
    return ready;
  }
};

Manager::Manager(InformerFactory& informers, const Clock& clock, int threads)
    : informers_(informers), clock_(clock), threads_(threads) {
  informers_.OnSynced([this] {
    { MutexLock lock(mutex_); }
    wake_.NotifyAll();
  });
}

Manager::~Manager() { Stop(); }

WorkQueue& Manager::Add(ControllerOptions options) {
  controllers_.push_back(std::make_unique<Controller>(std::move(options), clock_));
  WorkQueue& queue = controllers_.back()->queue;
  queue.OnReady([this] {
    // The lock orders this wake-up after a worker's look at the queues.
    { MutexLock lock(mutex_); }
    wake_.NotifyOne();
  });
  return queue;
}

void Manager::Start() {
  {
    MutexLock lock(mutex_);
    if (started_ || stopped_) {
      return;
    }
    started_ = true;
  }
  informers_.Start();
  for (int i = 0; i < threads_; ++i) {
    pool_.emplace_back([this, i] {
      pthread_setname_np(pthread_self(), ("reconcile-" + std::to_string(i)).c_str());
      Run();
    });
  }
}

void Manager::Stop() {
  {
    MutexLock lock(mutex_);
    if (stopped_) {
      return;
    }
    stopped_ = true;
  }
  wake_.NotifyAll();
  for (const auto& controller : controllers_) {
    controller->queue.Close();
  }
  informers_.Stop();
  for (std::thread& thread : pool_) {
    thread.join();
  }
}

std::optional<std::pair<Manager::Controller*, kube::ObjectKey>> Manager::Pick() {
  for (std::size_t i = 0; i < controllers_.size(); ++i) {
    Controller& controller = *controllers_[(turn_ + i) % controllers_.size()];
    if (controller.queue.idle() || controller.working >= controller.options.workers_max ||
        !controller.Ready()) {
      continue;
    }
    if (auto key = controller.queue.TryGet()) {
      ++controller.working;
      turn_ = (turn_ + i + 1) % controllers_.size();
      return std::pair(&controller, std::move(*key));
    }
  }
  return std::nullopt;
}

void Manager::Run() {
  mutex_.Lock();
  while (!stopped_) {
    auto picked = Pick();
    if (!picked) {
      std::optional<MonotonicTime> next;
      for (const auto& controller : controllers_) {
        const auto due = controller->queue.idle() ? std::nullopt : controller->queue.NextDue();
        if (due && controller->ready && controller->working < controller->options.workers_max &&
            (!next || *due < *next)) {
          next = due;
        }
      }
      if (next) {
        wake_.WaitUntil(mutex_, *next);
      } else {
        wake_.Wait(mutex_);
      }
      continue;
    }
    mutex_.Unlock();
    Work(*picked->first, picked->second);
    mutex_.Lock();
    --picked->first->working;
  }
  mutex_.Unlock();
}

int Manager::RunUntilIdle(int steps_max) {
  int steps = 0;
  while (steps < steps_max) {
    std::optional<std::pair<Controller*, kube::ObjectKey>> picked;
    {
      MutexLock lock(mutex_);
      picked = Pick();
    }
    if (!picked) {
      break;
    }
    Work(*picked->first, picked->second);
    MutexLock lock(mutex_);
    --picked->first->working;
    ++steps;
  }
  return steps;
}

void Manager::Work(Controller& controller, const kube::ObjectKey& key) {
  auto outcome = controller.options.reconcile(key);
  if (outcome.ok()) {
    controller.queue.Forget(key);
    if (outcome->again_after.count() > 0) {
      controller.queue.AddAfter(key, outcome->again_after);
    }
  } else {
    const Status& error = outcome.error();
    const bool first_tries = controller.queue.failures(key) < 3;
    if (IsQuiet(error) && first_tries) {
      log::Debug("reconcile again",
                 {{"controller", controller.options.name}, {"name", key.Text()}, {"error", error}});
    } else {
      log::Warn("reconcile failed",
                {{"controller", controller.options.name}, {"name", key.Text()}, {"error", error}});
    }
    controller.queue.Retry(key);
  }
  controller.queue.Done(key);
}

}  // namespace sublet::client
