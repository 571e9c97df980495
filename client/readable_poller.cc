#include "client/readable_poller.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"

namespace sublet::client {

ReadablePoller::ReadablePoller()
    : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  SUBLET_CHECK(epoll_ >= 0 && wake_ >= 0);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 0;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event);
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "http-poll");
    Run();
  });
}

ReadablePoller::~ReadablePoller() {
  const std::uint64_t one = 1;
  SUBLET_CHECK(write(wake_, &one, sizeof one) == sizeof one);
  thread_.join();
  close(epoll_);
  close(wake_);
}

std::uint64_t ReadablePoller::Add(int fd, std::function<void()> ready) {
  MutexLock lock(mutex_);
  const std::uint64_t id = next_id_++;
  entries_[id] = {fd, std::make_shared<const std::function<void()>>(std::move(ready))};
  epoll_event event{};
  event.events = EPOLLONESHOT;  // disarmed; hang-ups are reported all the same, once
  event.data.u64 = id;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  return id;
}

void ReadablePoller::Arm(std::uint64_t id) {
  MutexLock lock(mutex_);
  if (const auto found = entries_.find(id); found != entries_.end()) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT;
    event.data.u64 = id;
    epoll_ctl(epoll_, EPOLL_CTL_MOD, found->second.fd, &event);
  }
}

void ReadablePoller::Remove(std::uint64_t id) {
  MutexLock lock(mutex_);
  if (const auto found = entries_.find(id); found != entries_.end()) {
    epoll_ctl(epoll_, EPOLL_CTL_DEL, found->second.fd, nullptr);
    entries_.erase(found);
  }
}

void ReadablePoller::Run() {
  epoll_event events[64];
  for (;;) {
    const int count = epoll_wait(epoll_, events, 64, -1);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == 0) {
        return;
      }
      std::shared_ptr<const std::function<void()>> ready;
      {
        MutexLock lock(mutex_);
        if (const auto found = entries_.find(events[i].data.u64); found != entries_.end()) {
          ready = found->second.ready;
        }
      }
      if (ready) {
        (*ready)();
      }
    }
  }
}

}  // namespace sublet::client
