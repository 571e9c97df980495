// OnceSlot: a pointer that is put once, by whoever comes first, and read by many. Reading takes no lock.
// In place of std::atomic<std::shared_ptr>, see shared_slot.h. Threads: any; synchronises itself.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

namespace sublet {

template <typename T>
class OnceSlot {
 public:
  OnceSlot() = default;
  OnceSlot(const OnceSlot&) = delete;
  OnceSlot& operator=(const OnceSlot&) = delete;
  ~OnceSlot() { delete slot_.load(std::memory_order_relaxed); }

  // Null while nothing was put.
  std::shared_ptr<T> Load() const {
    const std::shared_ptr<T>* held = slot_.load(std::memory_order_acquire);
    return held == nullptr ? nullptr : *held;
  }
  // Puts `value` unless another was put before; returns the one that is there.
  std::shared_ptr<T> Put(std::shared_ptr<T> value) {
    auto fresh = std::make_unique<const std::shared_ptr<T>>(std::move(value));
    const std::shared_ptr<T>* held = nullptr;
    if (slot_.compare_exchange_strong(held, fresh.get(), std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
      return *fresh.release();
    }
    return *held;
  }

 private:
  std::atomic<const std::shared_ptr<T>*> slot_ = nullptr;
};

}  // namespace sublet
